"""What a Raft cluster promises, checked at the very event that would break it.

Definitions are exact, with their quantifiers; a violation names the checker.
"""

# A checker looks into the log of a core.
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
    """An entry as it was when it was committed for the first time, anywhere."""

    entry: Entry
    in_term: int
    """The term of the node that committed it."""


@final
class Checks:
    """All checkers, and the one true log that they compare with."""

    def __init__(self) -> None:
        self.committed: list[Committed] = []
        """The ghost log: what was committed first at each index, from 1 on."""
        self._leaders: dict[int, tuple[Identity, int]] = {}
        self._votes: dict[tuple[int, Identity], Identity] = {}
        self._known: dict[tuple[int, int], tuple[int, EntryKind, bytes]] = {}
        self._seen: dict[tuple[Identity, int], tuple[int, int]] = {}
        self._reads: dict[int, int] = {}
        self.latest_answer = -1
        """The highest context of a read that was served."""

    # After whatever a node has done.

    def observe(self, core: RaftCore, boot: int) -> None:
        """Look at a node: terms and commits rise, and leaders are what they should be."""
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
        """State machine safety: what is committed first at an index is so everywhere for ever."""
        snapshot = core._log.snapshot
        if end > len(self.committed) and len(self.committed) < core._log.base.index:
            problem = f"{core.identity} has a snapshot up to {snapshot.index}, committed by nobody"
            raise ViolationError("StateMachineSafety", problem)
        entries = core._log.entries_from(begin + 1, max_bytes=1 << 60, max_count=end - begin)
        for entry in entries:
            if entry.index > len(self.committed):
                self.committed.append(Committed(entry, core.term))
            elif self.committed[entry.index - 1].entry != entry:
                raise ViolationError(
                    "StateMachineSafety",
                    f"{core.identity} commits {entry}, before it was"
                    f" {self.committed[entry.index - 1].entry}",
                )

    def _lead(self, core: RaftCore, boot: int) -> None:
        """Election safety, and leader completeness: what was committed in a term < T is there."""
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

    # What a node hands out.

    def apply(self, identity: Identity, applied_index: int, entry: Entry) -> None:
        """Applied are committed entries, each once, in order."""
        if entry.index != applied_index + 1:
            problem = f"{identity} applies {entry.index} after {applied_index}"
            raise ViolationError("AppliedInOrder", problem)
        if entry.index > len(self.committed) or self.committed[entry.index - 1].entry != entry:
            raise ViolationError("StateMachineSafety", f"{identity} applies {entry}")

    def restore(self, identity: Identity, applied_index: int, snapshot: SnapshotMeta) -> None:
        """A snapshot stands for committed entries, and never takes the state machine back."""
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
        """Durable before sent, and one vote per term and voter, over reboots."""
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
        """What a message promises is on the disk of its sender."""
        durable = disk.hard_state
        if not durable.covers(promised) and not isinstance(message, PreVoteRequest):
            raise ViolationError("DurableBeforeSent", f"{message}, the disk has {durable}")

    def claim(self, core: RaftCore, disk: RaftDisk, reply: AppendReply) -> None:
        """What a node says to be on its disk is there, and is what its log has."""
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
        """Term and vote on disk never go back; entries match in all logs (by induction)."""
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

    # Reads.

    def ask(self, context: int) -> None:
        """Take note of all that is committed when a read is asked for."""
        self._reads[context] = len(self.committed)

    def answer(self, context: int, index: int) -> None:
        """A read sees all that was committed before it was asked for."""
        self.latest_answer = max(self.latest_answer, context)
        if index < self._reads[context]:
            problem = f"a read at {index} misses what was committed before, {self._reads[context]}"
            raise ViolationError("ReadIndexIsLinearizable", problem)
