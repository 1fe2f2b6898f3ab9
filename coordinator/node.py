"""One node of a cluster: Raft, metadata, controller, groups and the client of its commands.

Shell: owns the tasks that keep a node a part of its cluster.
"""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Final, final

import trio
from msgspec.structs import replace

from tidelog.coordinator.bootstrap.generation import known_directories
from tidelog.coordinator.bootstrap.open_node import OpenedNode
from tidelog.coordinator.controller.address_book import AddressBook
from tidelog.coordinator.controller.broker_clock import BrokerClock
from tidelog.coordinator.controller.command_client import CommandClient
from tidelog.coordinator.controller.controller import Controller
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.metadata.broker_delta import BrokerDelta
from tidelog.coordinator.metadata.broker_sessions import SESSION_MS
from tidelog.coordinator.raft.errors import ProposalRefusedError
from tidelog.coordinator.raft_node.peer_client import PeerClient
from tidelog.coordinator.raft_node.transport import RaftTransport
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    DataDirectoryError,
    DuplicateBrokerError,
    InvalidRequestError,
    LogOfflineError,
    TidelogError,
    UnsupportedVersionError,
    WireFormatError,
)
from tidelog.wire.messages.cluster import JoinRequest, PeerStatusReply
from tidelog.wire.messages.features import OWN_LEVELS
from tidelog.wire.protocol import api
from tidelog.wire.transport.node_rpc import NodeDialer

_LOOK_S: Final = 1.0
_OLD_SESSION_S: Final = 1.5 * SESSION_MS / 1000
"""By then every silent broker is fenced, also by a leader that was elected a moment ago."""
_ANSWER_TIMEOUT_S: Final = 5.0
_HANDOVER_S: Final = 2.0


@final
class ClusterNode:
    """The cluster parts of one process."""

    def __init__(
        self,
        env: Env,
        opened: OpenedNode,
        addresses: Mapping[int, tuple[str, int]],
        *,
        nursery: trio.Nursery,
        dialer: NodeDialer,
        clock: BrokerClock | None = None,
    ) -> None:
        """Assemble what `bootstrap.open_node` has opened; connections live in `nursery`.

        Args:
            env: Clock, network and disk.
            opened: The node.
            addresses: Host and port of the nodes that this one was started with, by node id.
            nursery: For tasks that never end by themselves.
            dialer: Connects to the other nodes.
            clock: The clock of this broker, if `env` has it.
        """
        self._env = env
        self.clock = BrokerClock(env.clock, env.probe) if clock is None else clock
        """The clock of this broker."""
        self._configured = addresses
        self._refused_at: float | None = None
        """When a live broker was found with this node's id, unless it released the id since."""
        self.status = opened.status
        """This node's answer to nodes that look for a cluster, as of its start."""
        self.raft = opened.node
        self.node_id = opened.node.identity.node_id
        name = f"node {self.node_id}"
        self.metadata = ReplicatedState(env, self.raft)
        self.raft.on_role_changed(self.metadata.role_changed)
        self.dialer = dialer
        """Connects to the other nodes."""
        self.addresses = AddressBook(addresses, lambda: self.metadata.state)
        address_of = self.addresses.address_of
        self._links = RaftTransport(
            env, nursery, dialer, name=name, cluster_id=self.raft.cluster_id, address_of=address_of
        )
        self.controller = Controller(
            env,
            self.raft,
            self.metadata,
            refused_since=self._links.refused_since,
            clock_skew_max_ms=self.clock.skew_max_ms,
            may_delete=lambda: self.clock.deletion_ms() is not None,
            known_ms=self.clock.known_ms,
        )
        self.peers = PeerClient(nursery, dialer, name=name, address_of=address_of)
        # All addresses may have changed since the nodes registered.
        self._peers_by_configuration = PeerClient(
            nursery, dialer, name=name, address_of=addresses.get
        )
        self.command_client = CommandClient(
            self.raft, self.metadata, self.controller, peers=self.peers, addresses=self.addresses
        )

    def peer_status(self) -> PeerStatusReply:
        """Return this node's present answer to nodes that start."""
        known = known_directories(self.metadata.state.brokers, self.status.directories)
        return replace(self.status, directories=known, is_leading=self.raft.is_active_leader)

    @property
    def is_alone(self) -> bool:
        """Whether no other broker of the cluster needs this one."""
        return self.raft.is_only_voter and len(self.metadata.state.brokers) <= 1

    def metadata_age_ms(self) -> int | None:
        """Return the time since this node's metadata were current; `None` if they never were.

        Never: since the start of this process. No other node can change those of the only voter.
        """
        age_ms = self.command_client.metadata_age_ms()
        is_loaded = self.raft.is_active_leader or age_ms is not None
        return 0 if self.raft.is_only_voter and is_loaded else age_ms

    def on_alone(self, listener: Callable[[], None]) -> None:
        """Call `listener` now, and whenever `is_alone` may have changed."""

        def committed(delta: BrokerDelta) -> None:
            if delta.has_changed_brokers:
                listener()

        self.raft.on_membership_changed(listener)
        self.metadata.subscribe(committed, hears_transactions=False)
        listener()

    async def run(self) -> None:
        """Take part in the cluster until cancelled.

        Raises:
            LogOfflineError: The disk failed: this node does not take part any more.
            DataDirectoryError: The metadata log is of a newer version.
        """
        failure: TidelogError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.controller.run)
            try:
                await self.raft.run(self.metadata, self._links)
            except (LogOfflineError, DataDirectoryError) as error:
                failure = error  # Raised below, outside of an exception group.
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def wait_first_term(self) -> None:
        """Wait until this node leads if it is the only voter; else return at once."""
        while self.raft.is_only_voter and not self.raft.is_active_leader:
            await self.raft.wait_applied()

    async def keep_joined(self, host: str, port: int) -> None:
        """Announce this node's address, and request membership until the cluster knows the node.

        Returns at once without peers, otherwise never.

        Raises:
            DuplicateBrokerError: A live broker has this node's id.
            ConfigError: All peers belong to another cluster.
            UnsupportedVersionError: This version does not know the cluster's feature level.
        """
        others = [node_id for node_id in self._configured if node_id != self.node_id]
        request = JoinRequest(
            self.raft.cluster_id, self.status.peer, host, port, supported_levels=OWN_LEVELS
        )
        is_told = False
        while others:
            if not is_told or not self._is_heard_of():
                is_told = await self._join(others, request)
            await trio.sleep(_LOOK_S)

    def _is_heard_of(self) -> bool:
        is_member = self.raft.identity in self.raft.membership.members
        return is_member and self.raft.leader_id is not None

    async def _join(self, others: list[int], request: JoinRequest) -> bool:
        ways = (self._peers_by_configuration, self.peers)
        strangers: dict[int, str] = {}
        for peers, node_id in product(ways, others):
            try:
                reply = await peers.ask(node_id, api.JOIN, request, timeout_s=_ANSWER_TIMEOUT_S)
            except DuplicateBrokerError as error:
                self._wait_for_old_session(error)
                return False
            except UnsupportedVersionError:
                raise
            except InvalidRequestError as error:
                strangers[node_id] = str(error)
            except (BrokerError, ConnectionLostError, WireFormatError) as error:
                self._env.probe("not_joined", severity="debug", node_id=node_id, reason=str(error))
            else:
                self._refused_at = None
                if reply.host:
                    self.addresses.announced(reply.leader_id, (reply.host, reply.port))
                return True
        if len(strangers) == len(others):
            # No member of its own cluster is in the list: the node would go on alone, unnoticed.
            raise ConfigError(
                f"{strangers[others[0]]}; name nodes of one cluster with --peers, or give this node"
                " an empty --data-dir"
            )
        return False

    def _wait_for_old_session(self, error: DuplicateBrokerError) -> None:
        """Allow another attempt: the live broker may be this one, before its disk was lost.

        Raises:
            DuplicateBrokerError: It has been alive for longer than an old session lasts.
        """
        now = trio.current_time()
        if self._refused_at is None:
            self._refused_at = now
            self._env.probe("place_is_taken", severity="warning", reason=str(error))
        elif now - self._refused_at > _OLD_SESSION_S:
            raise error

    async def transfer_leadership(self) -> None:
        """Transfer the Raft leadership to another voter, if this node leads and one can."""
        brokers = self.metadata.state.brokers
        with trio.move_on_after(_HANDOVER_S):
            for voter in self.raft.membership.others(self.raft.identity):
                broker = brokers.get(voter.node_id)
                if not self.raft.is_leader:
                    return
                if broker is None or broker.is_fenced:
                    continue
                try:
                    self.raft.transfer_leadership(voter.node_id)
                except ProposalRefusedError:
                    continue
                while self.raft.is_leader:
                    await self.raft.wait_role_changed()
