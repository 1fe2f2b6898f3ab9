"""The job that moves messages of a queue elsewhere, mostly dead letters back.

Pure: declarations.
"""

from dataclasses import dataclass
from typing import final

from tidelog.wire.messages.queue_journal import SnapshotRedrive
from tidelog.wire.messages.redrives import RedriveStatus


@final
@dataclass(frozen=True, slots=True)
class Redrive:
    """The redrive of one partition that runs, or ran last."""

    end: int
    """Exclusive: what came after it began stays."""
    next_offset: int
    """Below it all was looked at."""
    to_move: int
    """How many messages there were when it began, filtered or not."""
    started_ms: int
    number: int = 1
    """Of all redrives of this partition, from 1 on."""
    taken: int = 0
    """How many it has taken out of the queue."""
    moved: int = 0
    """How many of those are where they were to go."""
    failed: int = 0
    """How many of those could not be moved, and are visible again."""
    skipped: int = 0
    """How many it has looked at and left: it is not for them, or they have no place to go to."""
    status: RedriveStatus = RedriveStatus.RUNNING
    ended_ms: int | None = None
    """When all was looked at, or it was cancelled; `None` while it runs."""
    destination: bytes | None = None
    """Topic id; `None` for where each message came from."""
    messages_per_s: int | None = None
    origin_queue: str | None = None
    """Only messages from this queue."""
    reason: str = ""
    """Why it failed or was cancelled."""

    @property
    def left(self) -> int:
        """How many it has not looked at; others may have received some of them meanwhile."""
        if self.status is RedriveStatus.COMPLETED:
            return 0
        return max(0, self.to_move - self.taken - self.skipped)

    def snapshot(self) -> SnapshotRedrive:
        """Return what a snapshot keeps of it."""
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
        """Return the redrive that a snapshot kept."""
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
