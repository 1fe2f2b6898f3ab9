"""Counts of what happens to the messages of one queue.

Pure: no clock, no I/O. The journal is the source: each entry is counted when it is decided, so the
counts of all leaders together are those of the journal, and of decisions that a deposed leader
could not commit any more.
"""

from collections.abc import Sequence
from typing import final

from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    DeadLettered,
    Deleted,
    Expired,
    Released,
    Returned,
)
from tidelog.wire.messages.queues import ReceivedRun, Run


@final
class QueueTotals:
    """Totals of the partitions of a queue that this broker serves or has served."""

    __slots__ = (
        "dead_letters",
        "deleted",
        "duplicates",
        "empty_receives",
        "expired",
        "expired_leases",
        "received",
        "redelivered",
        "released",
        "sent",
    )

    def __init__(self) -> None:
        """Begin at 0."""
        self.sent = 0
        self.duplicates = 0
        self.received = 0
        self.redelivered = 0
        self.deleted = 0
        self.released = 0
        self.expired = 0
        self.expired_leases = 0
        self.dead_letters = 0
        self.empty_receives = 0

    @property
    def total(self) -> int:
        """See `ObjectCounts`."""
        return (
            self.sent
            + self.duplicates
            + self.received
            + self.deleted
            + self.released
            + self.expired
            + self.expired_leases
            + self.dead_letters
            + self.empty_receives
        )

    def decided(self, entries: Sequence[AnyEntry]) -> None:
        """Count the entries of a decision, except those of receives."""
        for entry in entries:
            match entry:
                case Deleted():
                    self.deleted += _length(entry.runs)
                case Released() | Returned():
                    self.released += _length(entry.runs)
                case Expired():
                    self.expired += _length(entry.runs)
                case DeadLettered():
                    self.dead_letters += _length(entry.runs)
                case _:
                    pass

    def delivered(self, runs: Sequence[ReceivedRun]) -> None:
        """Count the messages of a receive."""
        for run in runs:
            self.received += run.count
            if run.receive_count > 1:
                self.redelivered += run.count


def _length(runs: Sequence[Run]) -> int:
    length = 0
    for _, count in runs:
        length += count
    return length
