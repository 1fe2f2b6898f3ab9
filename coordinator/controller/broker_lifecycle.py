"""The lifecycle of a broker: registration, heartbeats, controlled shutdown (KIP-631).

Shell around `coordinator.metadata.broker_sessions.BrokerSession`. A broker without answers from the
cluster stops acting as a leader before the cluster gives its partitions to others.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, final

import trio

from tidelog.coordinator.controller.broker_clock import BrokerClock
from tidelog.coordinator.controller.command_client import CommandClient
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.metadata.broker_commands import is_old_directory
from tidelog.coordinator.metadata.broker_sessions import (
    HEARTBEAT_INTERVAL_MS,
    SESSION_MS,
    BrokerSession,
)
from tidelog.coordinator.metadata.commands import RegisterBroker, Registered
from tidelog.wire.env.env import Env
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.errors import (
    DuplicateBrokerError,
    RequestTimedOutError,
    RetriableError,
    StaleBrokerEpochError,
    TidelogError,
)
from tidelog.wire.messages.cluster import (
    BrokerHeartbeatReply,
    BrokerHeartbeatRequest,
    DamagedReplicas,
)
from tidelog.wire.messages.features import OWN_LEVELS
from tidelog.wire.messages.quotas import PrincipalShare, PrincipalUse

_ATTEMPT_S: Final = SESSION_MS / 1000
_RETRY_S: Final = 0.5
_LEAVING_S: Final = 0.1
_LEARN_TIME_S: Final = 1.0
"""Longest delay of a start for the agreed time: it delays the return of the partitions, too."""
_LEARN_TIME_AGAIN_S: Final = 0.1


class BrokerInfo(NamedTuple):
    """The data of a broker's registration."""

    node_id: int
    disk_id: str
    """Id of its data directory."""
    host: str
    port: int
    """Address for clients and other brokers."""
    rack: str
    """Its failure domain; empty for a domain of its own."""
    clean_stop_epoch: int | None
    """Broker epoch of the last process in this directory, if it stopped with all on disk."""
    directory_epoch: int = 0
    """Broker epoch that the data directory holds, 0 for none."""


class _Grant(NamedTuple):
    """A heartbeat whose answer permits this broker to lead."""

    metadata_index: int
    """The entry of the metadata that the broker must have applied before."""
    sent_at_ms: int


@final
class BrokerLifecycle:
    """The registration and session of one process of a broker.

    Invariant: while `may_lead` is true, no other broker got this broker's leaderships because of
    silence. A leadership that an administrator moves away from a live broker stays until the broker
    learns of the move, for the time of a session at most.
    """

    def __init__(
        self,
        env: Env,
        command_client: CommandClient,
        metadata: ReplicatedState,
        *,
        info: BrokerInfo,
        cluster_id: str,
        is_only_voter: Callable[[], bool],
        write_epoch: Callable[[int], Awaitable[None]],
        clock: BrokerClock | None = None,
    ) -> None:
        """Start unregistered; `run` must run in a task of its own.

        Args:
            env: Clock and network.
            command_client: The client of the controller.
            metadata: This broker's image of the metadata.
            info: The data of its registration.
            cluster_id: Its cluster.
            is_only_voter: Whether this node is the only voter.
            write_epoch: Writes a broker epoch into the data directory, durably.
            clock: Gets the agreed time from the answers to heartbeats.
        """
        self._env = env
        self._clock = BrokerClock(env.clock, env.probe) if clock is None else clock
        self._command_client = command_client
        self._metadata = metadata
        self._info = info
        self._cluster_id = cluster_id
        self._is_only_voter = is_only_voter
        self._write_epoch = write_epoch
        self._directory_epoch = info.directory_epoch
        self._has_no_room = False
        """Whether the last write of an epoch failed."""
        self._incarnation_id = env.random.randbytes(12).hex()
        self._now_s = loop_clock()
        self._session = BrokerSession()
        self._is_fenced = True
        self._heartbeat_lock = trio.Lock()
        self._grants: list[_Grant] = []
        """Grants that are not in force yet. The first and the last one are enough."""
        self.broker_epoch: int | None = None
        """Broker epoch of the last registration; `None` before the first."""
        self.damaged: Callable[[], DamagedReplicas | None] = lambda: None
        """Returns the damaged replicas of this broker; `None` before its logs are open."""
        self.quota_use: Callable[[], list[PrincipalUse]] = list
        """Returns the use of quotas at this broker since the last heartbeat."""
        self.on_quota_shares: Callable[[list[PrincipalShare], int], None] = lambda _, __: None
        """Takes the shares of an answer, with the monotonic time of its heartbeat."""

    def may_lead(self) -> bool:
        """Return whether this broker may act as the leader of its partitions.

        The only voter needs no session: no other node could give its partitions to others.
        """
        if self._grants:
            self._accept_grants()
        return not self._is_fenced and (
            self._now_s() * 1000 < self._session.valid_until_ms or self._is_only_voter()
        )

    async def run(self) -> None:
        """Register, unless that is done, and send heartbeats; until cancelled.

        Raises:
            DuplicateBrokerError: Another process has this broker's node id; this one must stop.
        """
        if self.broker_epoch is None:
            await self.register()
        while True:
            await self.heartbeat()
            is_in = not self._is_fenced
            await trio.sleep(HEARTBEAT_INTERVAL_MS / 1000 if is_in else _RETRY_S)

    async def register(self) -> None:
        """Register this broker; return when the cluster has accepted it.

        The epoch of the registration is in the data directory then, unless the disk has no room.

        Raises:
            DuplicateBrokerError: Another process has this broker's node id.
            UnsupportedVersionError: This version does not know the cluster's feature level.
        """
        while True:
            try:
                reply = await self._command_client.submit(self._command(), timeout_s=_ATTEMPT_S)
            except (RetriableError, StaleBrokerEpochError) as error:
                self._env.probe("not_registered", severity="warning", reason=str(error))
                await trio.sleep(_RETRY_S)
                continue
            assert isinstance(reply, Registered)
            self.broker_epoch = reply.broker_epoch
            self._env.probe("broker_registered", severity="debug", broker_epoch=reply.broker_epoch)
            if is_old_directory(reply.directory_epoch, self._directory_epoch):
                self._env.probe(
                    "directory_is_old",
                    severity="warning",
                    directory_epoch=self._directory_epoch,
                    known_epoch=reply.directory_epoch,
                )
            await self._record_epoch()
            return

    async def _record_epoch(self) -> None:
        """Write the epoch of the registration into the data directory, unless it holds that.

        The directory of a later moment can then be told from an earlier copy. If the disk has no
        room, the cluster does not learn of the epoch, and the next heartbeat tries again.
        """
        epoch = self.broker_epoch
        if epoch is None or epoch <= self._directory_epoch:
            return
        try:
            await self._write_epoch(epoch)
        except OSError as error:
            if not self._has_no_room:
                self._env.probe("directory_epoch_unwritten", severity="warning", reason=str(error))
            self._has_no_room = True
            return
        self._has_no_room = False
        self._directory_epoch = epoch

    async def learn_time(self) -> None:
        """Wait for the agreed time, a short time at most, before this broker opens its logs.

        A broker whose clock is days behind would else record these times in its logs. It stays
        fenced meanwhile.

        Raises:
            DuplicateBrokerError: Another process has this broker's node id.
        """
        with trio.move_on_after(_LEARN_TIME_S):
            while self._clock.known_ms() is None:
                try:
                    await self._send_heartbeat(wants_to_stop=False, is_open=False)
                except DuplicateBrokerError:
                    raise
                except TidelogError as error:
                    self._env.probe("heartbeat_failed", severity="debug", reason=str(error))
                if self._clock.known_ms() is None:
                    await trio.sleep(_LEARN_TIME_AGAIN_S)

    def _command(self) -> RegisterBroker:
        info = self._info
        known = self._metadata.state.brokers.get(info.node_id)
        return RegisterBroker(
            info.node_id,
            info.disk_id,
            self._incarnation_id,
            info.host,
            info.port,
            info.rack,
            info.clean_stop_epoch,
            known_epoch=0 if known is None else known.broker_epoch,
            directory_epoch=self._directory_epoch,
            supported_levels=OWN_LEVELS,
        )

    async def controlled_shutdown(self, *, timeout_s: float) -> bool:
        """Move this broker's leaderships to others; return whether it has none left.

        It has none left either when the cluster does not know this process any more.
        """
        with trio.move_on_after(timeout_s):
            while True:
                try:
                    answer = await self._send_heartbeat(wants_to_stop=True)
                except StaleBrokerEpochError:
                    return True
                except RequestTimedOutError:
                    continue
                if answer.may_stop:
                    return True
                await trio.sleep(_LEAVING_S)
        return False

    async def heartbeat(self) -> None:
        """Send one heartbeat, or register again if the cluster does not know this broker.

        Raises:
            DuplicateBrokerError: Another process has this broker's node id.
        """
        await self._record_epoch()
        try:
            await self._send_heartbeat(wants_to_stop=False)
        except StaleBrokerEpochError:
            # Unregistered, or unknown to the cluster. If another process has taken over,
            # the registration is refused with that reason.
            self._is_fenced = True
            await self.register()
        except DuplicateBrokerError:
            raise
        except TidelogError as error:
            # Any error, perhaps a defect of the controller: the session limits how long this broker
            # may go on.
            self._env.probe("heartbeat_failed", severity="warning", reason=str(error))

    async def _send_heartbeat(
        self, *, wants_to_stop: bool, is_open: bool = True
    ) -> BrokerHeartbeatReply:
        assert self.broker_epoch is not None, "registered before"
        async with self._heartbeat_lock:
            known = self._metadata.state.brokers.get(self._info.node_id)
            is_caught_up = known is not None and known.broker_epoch >= self.broker_epoch
            wall_ms = self._clock.wall_ms()
            sent_at_ms = _now_ms()
            answer = await self._command_client.heartbeat(
                BrokerHeartbeatRequest(
                    self._cluster_id,
                    self._info.node_id,
                    self.broker_epoch,
                    is_caught_up and is_open,
                    wants_to_stop,
                    self._metadata.applied_index,
                    self._directory_epoch,
                    wall_ms,
                    OWN_LEVELS,
                    self.damaged(),
                    self.quota_use(),
                ),
                timeout_s=_ATTEMPT_S,
            )
            self._clock.answered(answer, sent_ms=sent_at_ms)
            self.on_quota_shares(answer.quota_shares, sent_at_ms)
            if answer.is_fenced:
                self._is_fenced = True
                self._grants.clear()
            elif answer.is_counted:
                self._grants[1:] = [_Grant(answer.metadata_index, sent_at_ms)]
                self._accept_grants()
            return answer

    def _accept_grants(self) -> None:
        """Start sessions once this broker has applied all metadata from before their heartbeats.

        Otherwise a fenced broker that was unfenced could go on to lead partitions that were moved
        meanwhile.
        """
        while self._grants and self._grants[0].metadata_index <= self._metadata.applied_index:
            grant = self._grants.pop(0)
            self._is_fenced = False
            self._session.answered(sent_at_ms=grant.sent_at_ms)


def _now_ms() -> int:
    """Return monotonic time."""
    return int(trio.current_time() * 1000)
