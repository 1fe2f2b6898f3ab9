"""Mutations of Raft, which runs must find.

Each replaces a function of the core for the duration of a block; the core itself contains none of
it. Mutations of durability also disable the checks that compare messages with the disk. Those would
object at once, and the runs must show that the consequences are found as well.
"""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from collections.abc import Iterable, Sequence
from typing import Any

from tests.simulation.mutations.mutation import Mutation, Patch
from tests.simulation.raft.checks import Checks
from tidelog.broker.handlers import raft as handler
from tidelog.coordinator.raft.core import RaftCore
from tidelog.coordinator.raft.follower import Follower
from tidelog.coordinator.raft.hard_state import HardStateGate
from tidelog.coordinator.raft.leader import Leader
from tidelog.coordinator.raft.log import RaftLog
from tidelog.coordinator.raft.membership import Identity, Membership, index_of_majority
from tidelog.coordinator.raft.messages import (
    AppendReply,
    AppendRequest,
    Entry,
    EntryId,
    EntryKind,
    Message,
    SnapshotMeta,
    VoteReply,
    VoteRequest,
)
from tidelog.coordinator.raft.reads import ReadQueue
from tidelog.coordinator.raft.ready import (
    AddLearner,
    HardState,
    MembershipChange,
    Promote,
    ReadState,
)


def _say_nothing(*_: object) -> None:
    """Replace a check that is disabled."""


_NO_PROMISE_CHECK: Patch = (Checks, "promise", _say_nothing)
_NO_CLAIM_CHECK: Patch = (Checks, "claim", _say_nothing)
_NO_FORGERY_CHECK: Patch = (Checks, "forged", _say_nothing)


def _post_at_once(self: HardStateGate, message: Message) -> None:
    self._write_buffer.append(message)


def _unsynced_without_vote(self: HardStateGate) -> HardState | None:
    return None if self._durable.term == self.term else HardState(self.term)


def _vote_for_any_candidate(self: HardStateGate, candidate: Identity) -> None:
    self._current = HardState(self.term, candidate)


def _on_vote_request_again(self: RaftCore, request: VoteRequest) -> None:
    is_granted = request.term == self.term and self._is_up_to_date(request.last)
    if is_granted:
        self._hard_state.vote_for(request.sender)
        self._timer.reset()
    self._hard_state.post(VoteReply(self.identity, request.sender, self.term, is_granted))


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


def _index_of_majority(self: Leader, voters: Sequence[Identity], own_index: int) -> int:
    return index_of_majority(
        own_index if voter == self._identity else self._progress[voter].match_index
        for voter in voters
    )


def _commit_any_term(self: Leader) -> int:
    return _index_of_majority(self, self._log.membership.voters, self._log.durable_index)


def _commit_before_own_sync(self: Leader) -> int:
    index = _index_of_majority(self, self._log.membership.voters, self._log.last_index)
    return index if self._log.term_at(index) == self.term else self._log.commit_index


def _commit_by_learners(self: Leader) -> int:
    index = _index_of_majority(self, self._log.membership.members, self._log.durable_index)
    return index if self._log.term_at(index) == self.term else self._log.commit_index


_append = RaftCore._append


def _append_no_term_start(self: RaftCore, kind: EntryKind, payload: bytes) -> EntryId:
    return self.last if kind is EntryKind.TERM_START else _append(self, kind, payload)


_report = Follower._report


def _report_what_is_received(
    self: Follower, leader: Identity, term: int, attempt: int, *, read_round: int
) -> AppendReply:
    reply = _report(self, leader, term, attempt, read_round=read_round)
    index = reply.received_index
    return AppendReply(reply.sender, leader, term, index, index, attempt, read_round)


def _accept_and_truncate(self: RaftLog, previous: EntryId, entries: Sequence[Entry]) -> int | None:
    if previous.index >= self.base.index and not self.holds(previous):
        return None
    behind = [entry for entry in entries if entry.index > max(self.base.index, self.commit_index)]
    if behind:
        if behind[0].index <= self.last_index:
            self._truncate_from(behind[0].index)
        self._entries.extend(behind)
        self._note_appended(behind)
    end = entries[-1].index if entries else previous.index
    return max(end, self.base.index)


def _install_always(self: RaftLog, snapshot: SnapshotMeta) -> bool:
    if snapshot.index <= self.base.index:
        return False
    self.durable_index = min(self.durable_index, self.commit_index)
    self._entries = []
    self.base = snapshot.entry_id
    self.snapshot = snapshot
    self.commit_index = max(self.commit_index, snapshot.index)
    self.is_snapshot_unsynced = True
    self.uncommitted_bytes = 0
    self._memberships = [(snapshot.index, snapshot.membership)]
    return True


def _install_and_keep(self: RaftLog, snapshot: SnapshotMeta) -> bool:
    behind = self._entries[max(0, snapshot.index - self.base.index) :]
    is_new = _install(self, snapshot)
    if is_new:
        self._entries = behind
        self._note_appended(behind)
    return is_new


_install = RaftLog.install


_begin_log = RaftLog.__init__


def _begin_with_old_log(
    self: RaftLog, snapshot: SnapshotMeta, entries: Iterable[Entry] = ()
) -> None:
    _begin_log(self, snapshot, entries)
    self.is_snapshot_unsynced = False


def _synced_by_index(self: RaftLog, last: EntryId, snapshot: SnapshotMeta | None) -> None:
    if self.is_snapshot_unsynced and snapshot != self.snapshot:
        return
    self.durable_index = max(self.durable_index, min(last.index, self.last_index))
    self.is_snapshot_unsynced = False


def _change_without_look(self: Leader, change: MembershipChange) -> Membership:
    membership = self._log.membership
    match change:
        case AddLearner():
            return membership.with_learner(change.identity)
        case Promote():
            return membership.with_promoted(change.node_id)
        case _:
            return membership.without(change.node_id)


_step = RaftCore.step


def _step_by_node_id(self: RaftCore, message: Message) -> None:
    known = self.membership.identity_of(message.sender.node_id) or message.sender
    cls: Any = type(message)
    fields = [getattr(message, name) for name in cls.__struct_fields__[2:]]
    _step(self, cls(known, self.identity, *fields))


def _step_although_damaged(self: RaftCore, message: Message) -> None:
    self.is_damaged = False
    _step(self, message)


def _confirmed_at_once(self: ReadQueue, _: int) -> list[ReadState]:
    return _take_confirmed(self, self.latest_round)


_take_confirmed = ReadQueue.take_confirmed


def _campaign_at_once(self: RaftCore) -> None:
    self._campaign()


def _take_entries_and_commit(self: Follower, request: AppendRequest) -> Any:  # noqa: ANN401
    answer = _take_entries(self, request)
    if isinstance(answer, AppendReply):
        self._log.commit_to(min(request.commit_index, self._log.last_index))
    return answer


_take_entries = Follower.take_entries


def _voters_only(self: RaftLog) -> tuple[Identity, ...]:
    return self.membership.voters


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "vote-not-saved",
        "votes are sent at once, and the candidate is never written to disk",
        (HardStateGate, "post", _post_at_once),
        (HardStateGate, "unsynced", _unsynced_without_vote),
        (HardStateGate, "is_durable", property(_always)),
        _NO_PROMISE_CHECK,
    ),
    Mutation(
        "sent-before-saved",
        "messages do not wait for term and vote",
        (HardStateGate, "post", _post_at_once),
    ),
    Mutation(
        "vote-twice",
        "every candidate gets the vote",
        (RaftCore, "_on_vote_request", _on_vote_request_again),
        (HardStateGate, "vote_for", _vote_for_any_candidate),
    ),
    Mutation(
        "any-log-is-up-to-date",
        "a vote does not check the candidate's log",
        (RaftCore, "_is_up_to_date", _always),
    ),
    Mutation(
        "commit-old-term",
        "entries of earlier terms are counted (figure 8)",
        (Leader, "committable_index", _commit_any_term),
    ),
    Mutation(
        "no-term-start",
        "a leader appends no entry of its own",
        (RaftCore, "_append", _append_no_term_start),
    ),
    Mutation(
        "ack-before-sync",
        "a follower acknowledges entries that are only in memory",
        (Follower, "_report", _report_what_is_received),
        _NO_CLAIM_CHECK,
    ),
    Mutation(
        "count-own-before-sync",
        "a leader counts entries that its own disk lacks",
        (Leader, "committable_index", _commit_before_own_sync),
    ),
    Mutation(
        "stale-ack",
        "the own disk's acknowledgement is matched by index only",
        (RaftLog, "synced", _synced_by_index),
        _NO_CLAIM_CHECK,
    ),
    Mutation(
        "truncate-always",
        "every append truncates the entries behind it",
        (RaftLog, "accept", _accept_and_truncate),
    ),
    Mutation(
        "commit-unmatched",
        "a follower applies the commit index to entries that it has not compared",
        (Follower, "take_entries", _take_entries_and_commit),
    ),
    Mutation(
        "snapshot-truncates",
        "a stale snapshot replaces a log that agrees with it",
        (RaftLog, "install", _install_always),
    ),
    Mutation(
        "snapshot-keeps-conflict",
        "a snapshot leaves entries that conflict with it (rule 7)",
        (RaftLog, "install", _install_and_keep),
    ),
    Mutation(
        "start-leaves-old-log",
        "a start keeps entries on the disk that do not belong to the snapshot",
        (RaftLog, "__init__", _begin_with_old_log),
    ),
    Mutation(
        "no-lease-check",
        "a node with a live leader still votes",
        (RaftCore, "_has_live_leader", _never),
    ),
    Mutation(
        "no-pre-vote",
        "a node campaigns without a pre-vote",
        (RaftCore, "_pre_campaign", _campaign_at_once),
    ),
    Mutation(
        "no-check-quorum",
        "an isolated leader stays leader",
        (Leader, "is_quorum_active", _always),
    ),
    Mutation(
        "two-changes",
        "a second change of the membership is accepted while one is uncommitted",
        (Leader, "changed_membership", _change_without_look),
    ),
    Mutation(
        "learner-counts",
        "learners are counted for commits",
        (Leader, "committable_index", _commit_by_learners),
    ),
    Mutation(
        "identity-is-node-id",
        "a node with another disk counts as the same one",
        (RaftCore, "step", _step_by_node_id),
    ),
    Mutation(
        "damaged-takes-part",
        "a node continues with the rest of its damaged log",
        (RaftCore, "step", _step_although_damaged),
        _NO_CLAIM_CHECK,
    ),
    Mutation(
        "removed-never-stands",
        "a voter whose removal is not committed does not campaign",
        (RaftLog, "promotable_voters", property(_voters_only)),
    ),
    Mutation(
        "read-unconfirmed",
        "a read is served without a majority",
        (ReadQueue, "take_confirmed", _confirmed_at_once),
    ),
    Mutation(
        "sender-not-checked",
        "a node may send messages of another node",
        (handler, "_check_sender", _say_nothing),
        _NO_FORGERY_CHECK,
    ),
    Mutation(
        "any-leader-obeyed",
        "a node obeys a second leader of a term",
        (RaftCore, "_check_sender", _say_nothing),
        _NO_FORGERY_CHECK,
    ),
    Mutation(
        "any-term-believed",
        "one message may use up all terms",
        (RaftCore, "_is_plausible", _always),
        _NO_FORGERY_CHECK,
    ),
)
"""All mutations."""
