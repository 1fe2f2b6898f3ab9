"""Checkers of Raft, called at the very event that would break a promise.

Definitions are exact, with their quantifiers; a violation names the checker.
"""

# A checker reads the private log of a core.
# pyright: reportPrivateUsage=false

from typing import NamedTuple, final

import pytest

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.raft.disk import RaftDisk
from tidelog.coordinator.raft.core import RaftCore
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import (
    AppendReply,
    Entry,
    EntryKind,
    Message,
    PreVoteRequest,
    SnapshotMeta,
    VoteReply,
    VoteRequest,
)
from tidelog.coordinator.raft.ready import HardState, Write
from tidelog.coordinator.raft.role import Role


class Committed(NamedTuple):
    """An entry at its first commit on any node."""

    entry: Entry
    in_term: int
    """The term of the node that committed it."""


@final
class Checks:
    """All checkers, and the reference log that they compare with."""

    def __init__(self) -> None:
        self.committed: list[Committed] = []
        """The ghost log: the entry committed first at each index, from 1 on."""
        self._leaders: dict[int, tuple[Identity, int]] = {}
        self._votes: dict[tuple[int, Identity], Identity] = {}
        self._known: dict[tuple[int, int], tuple[int, EntryKind, bytes]] = {}
        self._seen: dict[tuple[Identity, int], tuple[int, int]] = {}
        self._reads: dict[int, int] = {}
        self.latest_answer = -1
        """The highest context of a read that was served."""

    # After each step of a node.

    def observe(self, core: RaftCore, boot: int) -> None:
        """Check a node: terms and commits rise, and leaders are valid."""
        key = (core.identity, boot)
        term, commit_index = core.term, core.commit_index
        seen_term, seen_commit = self._seen.get(key, (0, 0))
        if term < seen_term:
            raise ViolationError("MonotoneTerm", f"{core.identity} went {seen_term} -> {term}")
        if commit_index < seen_commit:
            problem = f"commit of {core.identity} fell from {seen_commit} to {commit_index}"
            raise ViolationError("CommitNeverFalls", problem)
        if commit_index > seen_commit:
            self._commit(core, max(seen_commit, core._log.base.index), commit_index)
        if core.role is Role.LEADER and (term != seen_term or term not in self._leaders):
            self._lead(core, boot)
        self._seen[key] = (term, commit_index)

    def _commit(self, core: RaftCore, begin: int, end: int) -> None:
        """Check State Machine Safety: the first committed entry of an index is final."""
        snapshot = core._log.snapshot
        if end > len(self.committed) and len(self.committed) < core._log.base.index:
            problem = f"{core.identity} has a snapshot up to {snapshot.index}, never committed"
            raise ViolationError("StateMachineSafety", problem)
        entries = core._log.entries_from(begin + 1, max_bytes=1 << 60, max_count=end - begin)
        for entry in entries:
            if entry.index > len(self.committed):
                self.committed.append(Committed(entry, core.term))
            elif self.committed[entry.index - 1].entry != entry:
                raise ViolationError(
                    "StateMachineSafety",
                    f"{core.identity} commits {entry}, but earlier it was"
                    f" {self.committed[entry.index - 1].entry}",
                )

    def _lead(self, core: RaftCore, boot: int) -> None:
        """Check Election Safety, and Leader Completeness: entries of terms < T are there."""
        leader = self._leaders.setdefault(core.term, (core.identity, boot))
        if leader != (core.identity, boot):
            problem = f"{leader[0]} and {core.identity} both lead in term {core.term}"
            raise ViolationError("ElectionSafety", problem)
        for committed in reversed(self.committed):
            if committed.in_term < core.term:
                entry = committed.entry
                compacted = entry.index < core._log.base.index
                if not compacted and not core._log.holds(entry.entry_id):
                    problem = f"{core.identity}, leader of term {core.term}, lacks {entry}"
                    raise ViolationError("LeaderCompleteness", problem)
                break

    # Outputs of a node.

    def apply(self, identity: Identity, applied_index: int, entry: Entry) -> None:
        """Check that applied entries are committed, and applied once and in order."""
        if entry.index != applied_index + 1:
            problem = f"{identity} applies {entry.index} after {applied_index}"
            raise ViolationError("AppliedInOrder", problem)
        if entry.index > len(self.committed) or self.committed[entry.index - 1].entry != entry:
            raise ViolationError("StateMachineSafety", f"{identity} applies {entry}")

    def restore(self, identity: Identity, applied_index: int, snapshot: SnapshotMeta) -> None:
        """Check that a snapshot contains committed entries, and never reverts the state machine."""
        if snapshot.index <= applied_index:
            problem = f"{identity} goes from {applied_index} to snapshot {snapshot.index}"
            raise ViolationError("AppliedInOrder", problem)
        if (
            snapshot.index > len(self.committed)
            or self.committed[snapshot.index - 1].entry.term != snapshot.term
        ):
            raise ViolationError("StateMachineSafety", f"{identity} restores {snapshot}")

    @pytest.mark.invariant("I66")
    def send(self, core: RaftCore, disk: RaftDisk, message: Message) -> None:
        """Check that promises are durable when sent, and votes unique over reboots."""
        promised = HardState(message.term)
        if isinstance(message, VoteReply) and message.is_granted:
            promised = HardState(message.term, message.target)
        elif isinstance(message, VoteRequest):
            promised = HardState(message.term, message.sender)
        self.promise(disk, message, promised)
        if promised.voted_for is not None:
            self._vote(message.term, message.sender, promised.voted_for)
        if isinstance(message, AppendReply):
            self.claim(core, disk, message)

    def promise(self, disk: RaftDisk, message: Message, promised: HardState) -> None:
        """Check that a message's promises are on the disk of its sender."""
        durable = disk.hard_state
        if not durable.covers(promised) and not isinstance(message, PreVoteRequest):
            raise ViolationError("DurableBeforeSent", f"{message}, the disk has {durable}")

    def claim(self, core: RaftCore, disk: RaftDisk, reply: AppendReply) -> None:
        """Check that acknowledged entries are on the node's disk, and equal those of its log."""
        index = reply.durable_index
        on_disk = disk.term_at(index)
        is_compacted = index < disk.snapshot.index
        in_log = core._log.term_at(index) if core.term == reply.term else on_disk
        if (on_disk is None and not is_compacted) or on_disk != (in_log or on_disk):
            raise ViolationError("DurableBeforeSent", f"{reply}, the disk has {on_disk} there")

    def _vote(self, term: int, voter: Identity, candidate: Identity) -> None:
        earlier = self._votes.setdefault((term, voter), candidate)
        if earlier != candidate:
            problem = f"{voter} votes for {earlier} and for {candidate} in term {term}"
            raise ViolationError("OneVote", problem)

    def write(self, identity: Identity, disk: RaftDisk, write: Write) -> None:
        """Check that term and vote never fall on disk, and logs match (by induction)."""
        if write.hard_state is not None and not write.hard_state.covers(disk.hard_state):
            problem = f"{identity} replaces {disk.hard_state} by {write.hard_state}"
            raise ViolationError("HardStateNeverGoesBack", problem)
        if not write.entries:
            return
        first = write.entries[0]
        previous_term: int | None
        if write.snapshot is not None:
            previous_term = write.snapshot.term
        else:
            previous_term = disk.term_at(first.index - 1)
        for entry in write.entries:
            if previous_term is not None:
                self._match(entry, previous_term)
            previous_term = entry.term

    def _match(self, entry: Entry, previous_term: int) -> None:
        content = (previous_term, entry.kind, entry.payload)
        known = self._known.setdefault((entry.index, entry.term), content)
        if known != content:
            raise ViolationError("LogMatching", f"{entry} behind term {previous_term}, not {known}")

    # Forgeries.

    def forged(self, identity: Identity, accepted: str | None) -> None:
        """Check that a node has taken nothing from a message that no correct node sends."""
        if accepted is not None:
            raise ViolationError("ForgeriesAreRefused", f"{identity} takes {accepted}")

    # Reads.

    def ask(self, context: int) -> None:
        """Record the committed end at the request of a read."""
        self._reads[context] = len(self.committed)

    def answer(self, context: int, index: int) -> None:
        """Check that a read sees all entries committed before its request."""
        self.latest_answer = max(self.latest_answer, context)
        if index < self._reads[context]:
            problem = f"a read at {index} misses commits up to {self._reads[context]}"
            raise ViolationError("ReadIndexIsLinearizable", problem)
