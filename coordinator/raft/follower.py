"""The state of a follower: how it takes in the log of its leader.

Pure: no clock, no I/O.

What it reports is worked out anew from two facts each time: up to where its log is known to agree
with the leader's, and up to where it is on disk. So a reply never waits for the disk, and never
says more than the disk has; when more is synced, another reply says so.
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
        """Begin a term: what is committed agrees with every later leader's log."""
        self._identity = identity
        self._log = log
        self._max_unsynced_bytes = max_unsynced_bytes
        self._matched_index = log.commit_index

    def take_entries(self, request: AppendRequest) -> AppendReply | AppendRefusal:
        """Take in entries of the leader, or a heartbeat; return the answer.

        Nothing is taken while the disk is far behind: the leader is told how far this node is, and
        that something is missing when there is room for it again.
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
        """Take in a snapshot of the leader, if it is news; return how far this node is."""
        self._log.install(request.snapshot)
        return self.report(request.sender, request.term)

    def report(self, leader: Identity, term: int) -> AppendReply:
        """Return how far this node is, in answer to nothing that has to be named."""
        return self._report(leader, term, 0, read_round=0)

    def refusal(self, request: AppendRequest, term: int) -> AppendRefusal:
        """Return that `request.previous` is not here, and what may agree instead.

        A leader whose term is over learns of the later term, and nothing else.
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
