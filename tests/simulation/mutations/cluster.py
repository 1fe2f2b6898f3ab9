"""Mutations that clusters reveal: in consensus, metadata, leadership, and groups."""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

import hmac
from typing import Any, Final

from tests.simulation.mutations.mutation import Mutation
from tidelog.broker import dispatch
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.requests.response import RequestContext
from tidelog.coordinator.controller.broker_lifecycle import BrokerLifecycle
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.group_coordinator.leadership import GroupLeadership
from tidelog.coordinator.groups import heartbeats, reconciliation
from tidelog.coordinator.groups.group import Group, Member
from tidelog.coordinator.groups.partitions import unpack
from tidelog.coordinator.groups.records import AssignmentChanged
from tidelog.coordinator.metadata import broker_commands
from tidelog.coordinator.metadata.broker_sessions import BrokerHeartbeatTracker, BrokerSession
from tidelog.coordinator.metadata.catalog import Catalog, CreateTopic
from tidelog.coordinator.metadata.catalog import Record as CatalogRecord
from tidelog.coordinator.metadata.records import BrokerChanged, BrokerRegistration, Record
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.coordinator.raft.core import RaftCore
from tidelog.coordinator.raft.follower import Follower
from tidelog.coordinator.raft.hard_state import HardStateGate
from tidelog.coordinator.raft.leader import Leader
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import AppendReply, VoteReply, VoteRequest
from tidelog.coordinator.raft.ready import HardState
from tidelog.coordinator.raft_node.storage import RaftStorage, Vote
from tidelog.wire.errors import TopicExistsError
from tidelog.wire.messages.features import SupportedLevels
from tidelog.wire.messages.groups import GroupHeartbeatRequest
from tidelog.wire.protocol import node_proof

_save_vote = RaftStorage.save_vote


def _save_empty_vote(self: RaftStorage, vote: Vote) -> None:
    _save_vote(self, Vote(vote.identity, vote.cluster_id, HardState()))


def _vote_for_any_candidate(self: HardStateGate, candidate: Identity) -> None:
    self._current = HardState(self.term, candidate)


def _on_vote_request_again(self: RaftCore, request: VoteRequest) -> None:
    is_granted = request.term == self.term and self._is_up_to_date(request.last)
    if is_granted:
        self._hard_state.vote_for(request.sender)
        self._timer.reset()
    self._hard_state.post(VoteReply(self.identity, request.sender, self.term, is_granted))


def _always(*_: object, **__: object) -> bool:
    return True


def _commit_alone(self: Leader) -> int:
    return self._log.durable_index


_report = Follower._report


def _report_what_is_received(
    self: Follower, leader: Identity, term: int, attempt: int, *, read_round: int
) -> AppendReply:
    reply = _report(self, leader, term, attempt, read_round=read_round)
    index = reply.received_index
    return AppendReply(reply.sender, leader, term, index, index, attempt, read_round)


async def _do_not_wait(*_: object) -> None:
    """Skip the wait."""


_controller_of_this_term: Final = ReplicatedState._controller_of_this_term


def _controller_that_is_shown(self: ReplicatedState) -> MetadataStateMachine:
    controller = _controller_of_this_term(self)
    self.state = controller.state
    return controller


def _controller_for_ever(self: ReplicatedState) -> MetadataStateMachine:
    self.check_active_controller()
    if self._controller is None:
        self._controller = MetadataStateMachine.from_snapshot(self._image.snapshot())
    return self._controller


def _role_ignored(_: ReplicatedState) -> None:
    """Ignore the role."""


_expired = BrokerHeartbeatTracker.expired


def _expired_early(self: BrokerHeartbeatTracker, *, now_ms: int) -> Any:  # noqa: ANN401  (passed on)
    return _expired(self, now_ms=now_ms + 6_000)


_answered = BrokerSession.answered


def _answered_for_longer(self: BrokerSession, *, sent_at_ms: int) -> None:
    _answered(self, sent_at_ms=sent_at_ms + 3_000)


def _changed_alone(
    state: ClusterState,
    broker: BrokerRegistration,
    *,
    directory_epoch: int | None = None,
    supported_levels: SupportedLevels | None = None,
) -> list[Record]:
    del state
    fields = (broker.node_id, broker.is_fenced, broker.is_shutting_down, directory_epoch)
    return [BrokerChanged(*fields, supported_levels)]


_create = Catalog._create


def _create_again(
    self: Catalog, command: CreateTopic, replication_factor: int
) -> list[CatalogRecord]:
    try:
        return _create(self, command, replication_factor)
    except TopicExistsError:
        name = command.name
        known = self._by_name.pop(name)
        try:
            return _create(self, command, replication_factor)
        finally:
            self._by_name[name] = known


_change_assignment = Group.change_assignment


def _change_assignment_anyway(self: Group, record: AssignmentChanged) -> None:
    for partition in unpack(record.given):
        self.owner.pop(partition, None)
    _change_assignment(self, record)


def _next_step_without_owners(
    group: Group, member: Member, request: GroupHeartbeatRequest
) -> AssignmentChanged | None:
    owner, group.owner = group.owner, {}
    try:
        return reconciliation.next_step(group, member, request)
    finally:
        group.owner = owner


def _all_is_committed(self: Partition) -> int:
    if self.leader is not None:
        return self.leader.high_watermark
    return self._high_watermark if self.follower is None else self.log.log_end_offset


def _proven_or_believed(context: RequestContext) -> int:
    return context.node_id or 1


def _ids_only(asking: tuple[int, bytes], answering: tuple[int, bytes]) -> bytes:
    return b"%d %d" % (asking[0], answering[0])


def _mac_of_any_role(secret: bytes, role: bytes, both: bytes) -> bytes:
    del role
    return hmac.digest(secret, both, "sha256")


def _pass(*_: object) -> None:
    """Replace a check that is disabled."""


MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "empty-vote",
        "term and vote are saved as if there were none",
        (RaftStorage, "save_vote", _save_empty_vote),
    ),
    Mutation(
        "votes-again",
        "every candidate gets the vote",
        (RaftCore, "_on_vote_request", _on_vote_request_again),
        (HardStateGate, "vote_for", _vote_for_any_candidate),
    ),
    Mutation(
        "votes-for-less",
        "a vote does not check the candidate's log",
        (RaftCore, "_is_up_to_date", _always),
    ),
    Mutation(
        "commits-alone",
        "a leader treats entries on its own disk as committed",
        (Leader, "committable_index", _commit_alone),
    ),
    Mutation(
        "acks-from-memory",
        "a follower acknowledges entries that are only in memory",
        (Follower, "_report", _report_what_is_received),
    ),
    Mutation(
        "answer-before-commit",
        "the controller answers before its decision is committed",
        (ReplicatedState, "wait_committed", _do_not_wait),
    ),
    Mutation(
        "image-before-commit",
        "the controller shows its decisions before they are committed",
        (ReplicatedState, "_controller_of_this_term", _controller_that_is_shown),
    ),
    Mutation(
        "old-controller",
        "a leader that is elected again continues with its old state",
        (ReplicatedState, "_controller_of_this_term", _controller_for_ever),
        (ReplicatedState, "role_changed", _role_ignored),
    ),
    Mutation(
        "fenced-leads-on",
        "a broker does not check whether it may still lead",
        (BrokerLifecycle, "may_lead", _always),
    ),
    Mutation(
        "fenced-too-early",
        "brokers are fenced before their own session is over",
        (BrokerHeartbeatTracker, "expired", _expired_early),
    ),
    Mutation(
        "session-too-long",
        "a broker believes in its session for longer than the cluster does",
        (BrokerSession, "answered", _answered_for_longer),
    ),
    Mutation(
        "follower-shows-too-much",
        "a follower treats its whole log as committed, and shows it to its readers",
        (Partition, "high_watermark", property(_all_is_committed)),
    ),
    Mutation(
        "fencing-changes-nothing",
        "a broker keeps its leaderships when it is fenced and unfenced",
        (broker_commands, "_changed", _changed_alone),
    ),
    Mutation(
        "name-given-twice",
        "a topic is created although one of its name exists",
        (Catalog, "_create", _create_again),
    ),
    Mutation(
        "two-owners",
        "a member is assigned partitions that others own",
        (Group, "change_assignment", _change_assignment_anyway),
        (heartbeats, "next_step", _next_step_without_owners),
    ),
    Mutation(
        "members-told-early",
        "heartbeat replies are sent before their assignments are committed",
        (GroupLeadership, "settled", _do_not_wait),
    ),
    Mutation(
        "strangers-served",
        "requests of nodes are served on connections without a proof",
        (dispatch, "_proven", _proven_or_believed),
        (dispatch, "_check_sender", _pass),
    ),
    Mutation(
        "proof-not-bound-to-nonce",
        "a proof is of the two node ids alone, so that it can be replayed",
        (node_proof, "_both", _ids_only),
    ),
    Mutation(
        "proof-not-bound-to-role",
        "the proof of the answering node is valid as that of the asking node",
        (node_proof, "_mac", _mac_of_any_role),
    ),
)
"""Mutations that runs of clusters must find."""
