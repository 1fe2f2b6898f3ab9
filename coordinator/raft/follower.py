"""The state of a follower: how it accepts the log of its leader.

Pure: no clock, no I/O.

A report is computed from two facts each time: the index up to which the log is known to agree with
the leader's, and the index up to which it is on disk. So a reply never waits for the disk, and
never claims more than the disk has. When more is synced, another reply reports it.
"""

from typing import final

from tidelog.coordinator.raft.log import RaftLog
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import (
    AppendRefusal,
    AppendReply,
    AppendRequest,
    EntryId,
    SnapshotRequest,
)


@final
class Follower:
    """One node as a follower in the current term."""

    def __init__(self, identity: Identity, log: RaftLog, *, max_unsynced_bytes: int) -> None:
        """Start a term: committed entries agree with every later leader's log."""
        self._identity = identity
        self._log = log
        self._max_unsynced_bytes = max_unsynced_bytes
        self._matched_index = log.commit_index

    def take_entries(self, request: AppendRequest) -> AppendReply | AppendRefusal:
        """Accept entries of the leader, or a heartbeat; return the answer.

        No entries are accepted while the disk is far behind. The leader learns how far this node
        is, and, when there is room again, that entries are missing.
        """
        if self._log.unsynced_bytes > self._max_unsynced_bytes:
            return self._report(
                request.sender, request.term, request.attempt, read_round=request.read_round
            )
        end = self._log.accept(request.previous, request.entries)
        if end is None:
            return self.refusal(request, request.term)
        self._matched_index = max(self._matched_index, end)
        self._log.commit_to(min(request.commit_index, self._matched_index))
        return self._report(
            request.sender, request.term, request.attempt, read_round=request.read_round
        )

    def take_snapshot(self, request: SnapshotRequest) -> AppendReply:
        """Accept a snapshot of the leader, if it is newer; return this node's progress."""
        self._log.install(request.snapshot)
        return self.report(request.sender, request.term)

    def report(self, leader: Identity, term: int) -> AppendReply:
        """Return this node's progress, without naming a request."""
        return self._report(leader, term, 0, read_round=0)

    def refusal(self, request: AppendRequest, term: int) -> AppendRefusal:
        """Return a refusal for a missing `request.previous`, with the last entry that may agree.

        A leader of an earlier term learns of the later term, and nothing else.
        """
        previous = request.previous
        limit = EntryId(max(0, previous.index - 1), previous.term)
        return AppendRefusal(
            self._identity,
            request.sender,
            term,
            previous.index,
            self._log.find_conflict_by_term(limit),
            request.attempt,
            request.read_round,
        )

    def _report(self, leader: Identity, term: int, attempt: int, *, read_round: int) -> AppendReply:
        received_index = max(self._matched_index, self._log.commit_index)
        durable_index = min(received_index, self._log.durable_index)
        return AppendReply(
            self._identity, leader, term, received_index, durable_index, attempt, read_round
        )
