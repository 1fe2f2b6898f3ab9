"""The controller: the periodic work of the node that leads the cluster, and its broker sessions.

Shell: drives the clock of the decision cores in `coordinator.metadata`. It works only while this
node leads. Sessions are not replicated, so the next leader gives every broker a full session from
then on.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import final

import msgspec
import trio

from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.controller.voter_promotion import next_promotion
from tidelog.coordinator.metadata.broker_sessions import (
    BrokerHeartbeat,
    BrokerHeartbeatTracker,
    HeartbeatAnswer,
    heartbeat_answer,
    heartbeat_command,
)
from tidelog.coordinator.metadata.cluster_clock import CLOCK_SKEW_MAX_MS, ClockTable
from tidelog.coordinator.metadata.commands import (
    Command,
    ExpireTransactions,
    FenceBroker,
    SetFeatureLevel,
    UnregisterBroker,
)
from tidelog.coordinator.metadata.feature_commands import (
    check_node,
    first_level,
    node_features,
    obstacles,
)
from tidelog.coordinator.metadata.preferred_leaders import PreferredLeaders
from tidelog.coordinator.metadata.recovery_elections import RecoveryElections
from tidelog.coordinator.raft.errors import ProposalRefusedError
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.ready import AddLearner, MembershipChange, Remove
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.coordinator.raft_node.pending_proposals import (
    LostProposalError,
    OvertakenProposalError,
)
from tidelog.coordinator.security.quota_shares import QuotaShares
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    DuplicateBrokerError,
    LogOfflineError,
    NotControllerError,
)
from tidelog.wire.messages.cluster import DamagedReplicas
from tidelog.wire.messages.features import OWN_LEVELS, SupportedLevels, UpdateFeaturesReply
from tidelog.wire.messages.quotas import PrincipalShare, PrincipalUse

_LOOK_S = 0.25
"""Interval between checks for due work."""
_REFUSED_S = 0.75
"""A broker is dead when its address has refused connections for so long. If the broker is alive,
its fencing costs a change of leaders, and no more: its acknowledgements need the ISR."""
_LATE_S = 1.0
"""A check that is late by so much: this process did not run meanwhile, and received nothing."""

_SILENT = "no heartbeat arrived within its session"
_GONE = "its address refuses connections"


@final
class Controller:
    """Fences silent brokers, unfences others, and moves leaderships to preferred leaders.

    Invariant: there are sessions exactly for the term in which this node leads.
    """

    def __init__(
        self,
        env: Env,
        node: RaftNode,
        metadata: ReplicatedState,
        *,
        refused_since: Callable[[int], float | None] = lambda _: None,
        clock_skew_max_ms: int = CLOCK_SKEW_MAX_MS,
        may_delete: Callable[[], bool] = lambda: True,
        known_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Decide by `metadata` while `node` leads.

        Args:
            env: Clock and network.
            node: This node.
            metadata: The replicated state, and the way to change it.
            refused_since: Returns since when a node's address refuses connections, in seconds of
                trio's clock; see `coordinator.raft_node.transport`.
            clock_skew_max_ms: Maximum difference of a clock that agrees with another.
            may_delete: Returns whether transactions may be dropped by time now.
            known_ms: Returns this node's agreed time, maybe a former one; `None` without one.
        """
        self._env = env
        self._node = node
        self._metadata = metadata
        self._refused_since = refused_since
        self._may_delete = may_delete
        self._known_ms = known_ms
        self._clock_skew_max_ms = clock_skew_max_ms
        self._term = -1
        self._clocks = ClockTable(skew_max_ms=clock_skew_max_ms)
        self._sessions: BrokerHeartbeatTracker | None = None
        self._preferred: PreferredLeaders | None = None
        self._recoveries = RecoveryElections()
        self._quota_shares = QuotaShares()
        self._damaged: dict[int, DamagedReplicas] = {}
        """The damaged replicas that brokers have reported in this term, by node id."""

    async def run(self) -> None:
        """Work whenever this node leads; until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                wanted_at = trio.current_time() + _LOOK_S
                await trio.sleep_until(wanted_at)
                late_s = trio.current_time() - wanted_at
                try:
                    sessions, preferred = self._of_this_term()
                except NotControllerError:
                    continue
                if late_s >= _LATE_S:
                    sessions.extend(int(late_s * 1000))
                now_ms = _now_ms()
                for fence, reason in self._fences(sessions, now_ms):
                    nursery.start_soon(self._decide, fence, reason)
                state = self._metadata.state
                due: list[Command | None] = [
                    preferred.due(state, now_ms=now_ms),
                    self._recoveries.due(state, now_ms=now_ms),
                ]
                if self._may_delete() and self._metadata.are_transactions_due():
                    due.append(ExpireTransactions())
                for command in due:
                    if command is not None:
                        nursery.start_soon(self._decide, command)
                if self._metadata.state.is_first_level_open:
                    nursery.start_soon(self._set_first_level)
                nursery.start_soon(self._promote)

    def _fences(
        self, sessions: BrokerHeartbeatTracker, now_ms: int
    ) -> list[tuple[FenceBroker, str]]:
        """Return the commands that fence brokers, with the cause of each."""
        silent = [(each, _SILENT) for each in sessions.expired(now_ms=now_ms)]
        return silent + [(each, _GONE) for each in self._refused()]

    def _refused(self) -> list[FenceBroker]:
        """Return the commands for brokers whose process is gone for certain.

        The operating system refuses connections to a killed process at once. Waiting for the end of
        its session would leave its partitions without a leader for seconds.
        """
        return [
            FenceBroker(broker.node_id, broker.broker_epoch)
            for broker in self._metadata.newest_state().brokers.values()
            if not broker.is_fenced and self._is_gone(broker.node_id)
        ]

    def _is_gone(self, node_id: int) -> bool:
        since = self._refused_since(node_id)
        return since is not None and trio.current_time() - since >= _REFUSED_S

    async def heartbeat(self, heartbeat: BrokerHeartbeat, *, is_caught_up: bool) -> HeartbeatAnswer:
        """Record a broker's heartbeat, and return its state.

        If cancelled, the commands of the heartbeat may still be applied; the next heartbeat
        requests them again.

        Args:
            heartbeat: The broker's heartbeat.
            is_caught_up: Whether the broker's image has its own registration.

        Raises:
            NotControllerError: Another node leads the cluster.
            StaleBrokerEpochError: The broker must register first.
            RequestTimedOutError: No majority of the voters answers.
        """
        sessions, _ = self._of_this_term()
        arrived_ms = _now_ms()
        is_behind = sessions.is_behind(heartbeat, now_ms=_now_ms())
        # A broker that sends but refuses connections would be fenced and unfenced in turn.
        may_enter = is_caught_up and not is_behind and not self._is_gone(heartbeat.node_id)
        command = heartbeat_command(
            self._metadata.newest_state(), heartbeat, is_caught_up=may_enter
        )
        if heartbeat.wall_ms is not None:
            self._clocks.heard(heartbeat.node_id, heartbeat.wall_ms, now_ms=arrived_ms)
        if heartbeat.damaged is not None:
            self._damaged[heartbeat.node_id] = heartbeat.damaged
        if command is not None:
            await self._metadata.decide(command)
        else:
            # The broker may have been fenced since, also by this node. Another session would let it
            # lead beside another broker.
            await self._metadata.wait_current()
        answer = heartbeat_answer(self._metadata.state, heartbeat, is_counted=not is_behind)
        broker, now_ms = (heartbeat.node_id, heartbeat.broker_epoch), _now_ms()
        if not answer.is_fenced and not is_behind:
            sessions.touch(*broker, now_ms=now_ms)
        sessions.informed(*broker, index=self._node.commit_index, now_ms=now_ms)
        agreement = self._clocks.agreement(self._timekeepers(), now_ms=now_ms)
        return msgspec.structs.replace(
            answer,
            agreed_ms=agreement.time_ms,
            clock_skews_ms=agreement.skews_ms,
            controller_ms=self._known_ms(),
            damaged=self._known_damage(),
            quota_shares=self._shares(heartbeat),
        )

    def _shares(self, heartbeat: BrokerHeartbeat) -> list[PrincipalShare]:
        state = self._metadata.state
        quotas = state.security.quotas
        if not quotas:
            return []
        return self._quota_shares.answer(
            heartbeat.node_id,
            heartbeat.quota_use,
            quotas=quotas,
            live=[each.node_id for each in state.brokers.values() if not each.is_fenced],
            now_ms=_now_ms(),
        )

    def quota_use(self) -> Mapping[int, Mapping[str, PrincipalUse]]:
        """Return the use of principals that brokers have reported, by node id and principal.

        Raises:
            NotControllerError: This node does not lead.
        """
        self._of_this_term()
        return self._quota_shares.uses(now_ms=_now_ms())

    def _known_damage(self) -> list[DamagedReplicas]:
        """Return the damage of registered brokers, also of those that are fenced now."""
        brokers = self._metadata.state.brokers
        known = sorted(self._damaged.items())
        return [each for node_id, each in known if node_id in brokers]

    def _timekeepers(self) -> set[int]:
        """Return the nodes of which a majority decides about the time."""
        voters = {voter.node_id for voter in self._node.membership.voters}
        brokers = self._metadata.state.brokers.values()
        return voters | {broker.node_id for broker in brokers if not broker.is_fenced}

    async def admit(
        self, identity: Identity, address: tuple[str, int], supported: SupportedLevels | None
    ) -> None:
        """Make a started node a member of the cluster, unless it is one.

        A node that lost its metadata comes back under the same id with another identity. The old
        identity is removed, for it never comes back.

        Raises:
            NotControllerError: Another node leads the cluster, or it cannot be done at the moment.
            DuplicateBrokerError: A live broker has this node id, or has this identity at another
                address, or its session has not ended yet.
            UnsupportedVersionError: The node does not support the feature level of the cluster.
        """
        self._of_this_term()
        check_node(self._metadata.newest_state(), identity.node_id, supported)
        known = self._node.membership.identity_of(identity.node_id)
        broker = self._metadata.newest_state().brokers.get(identity.node_id)
        is_live = broker is not None and not broker.is_fenced
        if known == identity:
            if broker is not None and is_live and (broker.host, broker.port) != address:
                # A copy of its directory, unless that was moved and its session is not over yet.
                raise DuplicateBrokerError(
                    f"broker {identity.node_id} lives at {broker.host}:{broker.port}; a copy of its"
                    f" data directory cannot be another broker at {address[0]}:{address[1]}"
                )
            return
        if known is not None:
            if broker is not None and is_live:
                raise DuplicateBrokerError(
                    f"node id {identity.node_id} belongs to a live broker at"
                    f" {broker.host}:{broker.port}; choose an unused node id, or stop that broker"
                )
            await self._change_membership(Remove(identity.node_id))
            check_node(self._metadata.newest_state(), identity.node_id, supported)
        await self._change_membership(AddLearner(identity))
        self._env.probe("node_admitted", node_id=identity.node_id)

    async def unregister(self, node_id: int) -> bool:
        """Remove a node that is gone for good from the cluster; return whether it was a member.

        If cancelled, it may be removed, or unregistered and still vote; a retry completes the
        removal.

        Raises:
            NotControllerError: Another node leads the cluster, or it cannot be done at the moment.
            InvalidRequestError: The node is alive, or it still has replicas.
            RequestTimedOutError: No majority of the voters answers.
        """
        self._of_this_term()
        was_member = self._node.membership.identity_of(node_id) is not None
        was_registered = node_id in self._metadata.newest_state().brokers
        await self._metadata.decide(UnregisterBroker(node_id))
        if self._node.membership.identity_of(node_id) is not None:
            await self._change_membership(Remove(node_id))
        if was_member or was_registered:
            self._env.probe("node_removed", node_id=node_id)
        return was_member or was_registered

    async def update_features(self, level: int | None) -> UpdateFeaturesReply:
        """Set the feature level of the cluster, if one is given; return the levels of all nodes.

        If cancelled, the level may be set.

        Raises:
            NotControllerError: Another node leads the cluster.
            InvalidRequestError: A node does not know the level, or a record needs a higher one.
            RequestTimedOutError: No majority of the voters answers.
        """
        self._of_this_term()
        if level is None:
            await self._metadata.wait_current()
        else:
            await self._metadata.decide(SetFeatureLevel(level, self._member_ids()))
        state, member_ids = self._metadata.state, self._member_ids()
        newest = OWN_LEVELS.max_level
        return UpdateFeaturesReply(
            state.feature_level,
            newest,
            node_features(state, member_ids),
            [] if state.feature_level == newest else list(obstacles(state, member_ids, newest)),
        )

    async def _set_first_level(self) -> None:
        """Give a new cluster its first feature level, if all of its first nodes are there."""
        with suppress(NotControllerError):
            level = first_level(self._metadata.newest_state(), self._member_ids())
            if level is not None:
                await self._decide(SetFeatureLevel(level, self._member_ids()))

    def _member_ids(self) -> list[int]:
        return [member.node_id for member in self._node.membership.members]

    async def _promote(self) -> None:
        """Promote a learner to a voter, if that is due and possible."""
        brokers = self._metadata.state.brokers.values()
        live = [broker.node_id for broker in brokers if not broker.is_fenced]
        promotion = next_promotion(self._node.membership, live)
        if promotion is None:
            return
        try:
            await self._change_membership(promotion)
        except (NotControllerError, LogOfflineError) as error:
            # It may not have caught up, or another change is under way; the next check retries.
            self._env.probe("not_promoted", severity="debug", reason=str(error))
        else:
            self._env.probe("node_promoted", node_id=promotion.node_id)

    async def _change_membership(self, change: MembershipChange) -> None:
        try:
            await self._node.change_membership(change)
        except (ProposalRefusedError, LostProposalError, OvertakenProposalError) as error:
            raise NotControllerError(f"the members cannot be changed now: {error}") from error

    def _of_this_term(self) -> tuple[BrokerHeartbeatTracker, PreferredLeaders]:
        """Return the sessions and preferred leaders of the term in which this node leads.

        Raises:
            NotControllerError: This node does not lead.
        """
        brokers = self._metadata.newest_state().brokers
        if self._sessions is None or self._preferred is None or self._term != self._node.term:
            now_ms = _now_ms()
            self._term = self._node.term
            self._clocks = ClockTable(skew_max_ms=self._clock_skew_max_ms)
            self._sessions = BrokerHeartbeatTracker(brokers.values(), now_ms=now_ms)
            self._preferred = PreferredLeaders(now_ms=now_ms)
            self._recoveries = RecoveryElections()
            self._quota_shares = QuotaShares()
            self._damaged = {}
        return self._sessions, self._preferred

    async def _decide(self, command: Command, fenced_because: str = "") -> None:
        try:
            await self._metadata.decide(command, fenced_because=fenced_because)
        except BrokerError as error:
            # The next leader sees the same and decides again; so does this node, in a while.
            self._env.probe(
                "controller_command_failed",
                severity="warning",
                command=type(command).__name__,
                reason=str(error),
            )
            return
        self._forget_fenced()

    def _forget_fenced(self) -> None:
        if self._sessions is not None:
            for broker in self._metadata.state.brokers.values():
                if broker.is_fenced:
                    self._sessions.fenced(broker.node_id, broker.broker_epoch)


def _now_ms() -> int:
    """Return monotonic time."""
    return int(trio.current_time() * 1000)
