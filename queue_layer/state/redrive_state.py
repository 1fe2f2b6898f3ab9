"""Redrive of a queue partition: a job that moves messages, mostly dead letters back.

Pure: declarations.
"""

from dataclasses import dataclass
from typing import final

from tidelog.wire.messages.queue_journal import SnapshotRedrive
from tidelog.wire.messages.redrives import RedriveStatus


@final
@dataclass(frozen=True, slots=True)
class Redrive:
    """The redrive of one partition that runs, or the last one that ran."""

    end: int
    """Exclusive end: messages that came after its start stay."""
    next_offset: int
    """Offset below which all messages were looked at."""
    to_move: int
    """Messages at its start, matching its filter or not."""
    started_ms: int
    number: int = 1
    """Number among all redrives of this partition, from 1 on."""
    taken: int = 0
    """Messages that it has taken out of the queue."""
    moved: int = 0
    """Taken messages that are at their target."""
    failed: int = 0
    """Taken messages that could not be moved, and are visible again."""
    skipped: int = 0
    """Messages that stay: they do not match the filter, or have no destination."""
    status: RedriveStatus = RedriveStatus.RUNNING
    ended_ms: int | None = None
    """End, after the last message or by a cancellation; `None` while it runs."""
    destination: bytes | None = None
    """Topic id; `None` for the source of each message."""
    messages_per_s: int | None = None
    origin_queue: str | None = None
    """Only messages from this queue."""
    reason: str = ""
    """Reason of a failure or cancellation; while it runs, of the failure to come."""

    @property
    def left(self) -> int:
        """Number of messages that were not looked at; some may have been received meanwhile."""
        if self.status is RedriveStatus.COMPLETED or self.next_offset >= self.end:
            return 0
        return max(0, self.to_move - self.taken - self.skipped)

    def snapshot(self) -> SnapshotRedrive:
        """Return the fields for a snapshot."""
        return SnapshotRedrive(
            self.status,
            self.end,
            self.next_offset,
            self.to_move,
            self.taken,
            self.started_ms,
            self.destination,
            self.messages_per_s,
            self.origin_queue,
            self.reason,
            self.number,
            self.moved,
            self.failed,
            self.skipped,
            self.ended_ms,
        )

    @classmethod
    def from_snapshot(cls, kept: SnapshotRedrive) -> "Redrive":
        """Return the redrive of a snapshot."""
        return cls(
            end=kept.end,
            next_offset=kept.next_offset,
            to_move=kept.to_move,
            started_ms=kept.started_ms,
            number=kept.number,
            taken=kept.taken,
            moved=kept.moved,
            failed=kept.failed,
            skipped=kept.skipped,
            status=RedriveStatus(kept.status),
            ended_ms=kept.ended_ms,
            destination=kept.destination,
            messages_per_s=kept.messages_per_s,
            origin_queue=kept.origin_queue,
            reason=kept.reason,
        )
