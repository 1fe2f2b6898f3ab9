"""Redrives of a queue partition: jobs that move messages, mostly dead letters back.

Pure: no clock, no I/O.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, final

from tidelog.wire.messages.queue_journal import SnapshotRedrive
from tidelog.wire.messages.redrives import RedriveStatus

REDRIVES_KEPT: Final = 10
"""Redrives of a partition that are remembered (SQS: ListMessageMoveTasks)."""


@final
@dataclass(frozen=True, slots=True)
class Redrive:
    """A redrive of one partition that runs, or ran."""

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
    redrive_id: bytes = b""
    """Id that the client chose, the same in all partitions; empty for none."""
    note: str = ""
    """Text of the client for reports."""
    only_sources: bool = False
    """Whether messages go only to topics of queues that send their dead letters here."""

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
            self.redrive_id,
            self.note,
            self.only_sources,
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
            redrive_id=kept.redrive_id,
            note=kept.note,
            only_sources=kept.only_sources,
        )


@final
class Redrives:
    """The latest redrives of a partition, up to `REDRIVES_KEPT`."""

    __slots__ = ("_kept",)

    def __init__(self, kept: Iterable[Redrive] = ()) -> None:
        """Begin with redrives in the order of their starts."""
        self._kept = tuple(kept)

    @property
    def latest(self) -> Redrive | None:
        """Redrive that runs, or the last one that ran."""
        return self._kept[-1] if self._kept else None

    @property
    def earlier(self) -> tuple[Redrive, ...]:
        """The redrives before `latest`, in the order of their starts."""
        return self._kept[:-1]

    def with_id(self, redrive_id: bytes) -> Redrive | None:
        """Return the redrive with an id, if it is remembered; `None` for the empty id."""
        found = (each for each in self._kept if redrive_id and each.redrive_id == redrive_id)
        return next(found, None)

    def start(self, redrive: Redrive) -> None:
        """Remember a new redrive as the latest, and forget the oldest one of too many."""
        self._kept = (*self._kept, redrive)[-REDRIVES_KEPT:]

    def change(self, number: int, changed: Callable[[Redrive], Redrive]) -> None:
        """Replace the redrive of a number, if it is remembered."""
        kept = self._kept
        self._kept = tuple(changed(each) if each.number == number else each for each in kept)
