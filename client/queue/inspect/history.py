"""History of the messages of one partition of a queue, from its journal.

Pure: no clock, no I/O. Entries are about runs of messages, and a delete has neither the holder nor
the receive count of its messages: both follow from earlier entries. So frames are applied in their
order, from a snapshot (`wire.messages.queue_journal.Frame.snapshot_offset`) or the first frame on.
Memory: received messages that are not settled, one by one.
"""

from collections import OrderedDict
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple, final

import msgspec

from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    Attempt,
    DeadLettered,
    Delayed,
    Deleted,
    Expired,
    Extended,
    JournalFrame,
    LogStartAdvanced,
    Moved,
    MoveFailed,
    Purged,
    Received,
    ReceiveRepeated,
    RedriveEnded,
    Redriven,
    RedriveStarted,
    Released,
    Returned,
    Seeked,
    SnapshotEnded,
    SnapshotMoreAttempts,
    SnapshotMoreMoves,
    SnapshotRuns,
    SnapshotStarted,
    Target,
    TargetChanged,
)
from tidelog.wire.messages.queues import Run

_ATTEMPT_WINDOW_MS: Final = 5 * 60 * 1000
"""Age in milliseconds beyond which no receive is repeated."""


class EventKind(StrEnum):
    """Kinds of events."""

    RECEIVE = "receive"
    REPEAT = "repeat"
    """The reply of a receive was lost; its messages were delivered again without being counted."""
    EXTEND = "extend"
    DELETE = "delete"
    """With count 0 it was never received: it was cancelled, or is a chunk of a large message."""
    RELEASE = "release"
    RETURN = "return"
    """It was returned unseen: the receive does not count."""
    DEFER = "defer"
    """It was put off to its delivery time."""
    DEAD_LETTER = "dead-letter"
    """It is a dead letter, and is moved as soon as it has a target."""
    REDRIVE = "redrive"
    """It is moved back to its source, or elsewhere."""
    EXPIRE = "expire"
    """It is older than the retention of the queue."""
    MOVED = "moved"
    """The first messages in the move, `message_count` of them, are in their target."""
    MOVE_FAILED = "move-failed"
    """`message_count` messages cannot be moved there, and can be received again."""
    RETARGET = "retarget"
    """All messages in the move get another target."""
    PURGE = "purge"
    """All messages below an offset are deleted."""
    TRIM = "trim"
    """The topic has deleted all records below an offset."""
    SEEK = "seek"
    """All messages from an offset on can be received as if for the first time; messages below are
    done. The first event of a queue is a seek."""
    REDRIVE_START = "redrive-start"
    REDRIVE_END = "redrive-end"


@final
class HistoryEvent(msgspec.Struct, frozen=True, gc=False):
    """Event of one message or of many."""

    journal_offset: int
    """Offset in the journal; decisions made together may share one."""
    time_ms: int
    """Unix milliseconds by the time of the queue, which never runs backwards."""
    kind: EventKind
    offset: int | None = None
    """Offset of the message; `None` if the event is about many."""
    below_offset: int | None = None
    """End of the messages (purge, trim, redrive-start), or the place of a seek."""
    holder: str = ""
    """Name of the last receiver of the message."""
    receive_count: int = 0
    """Receives so far, this one included."""
    lease_id: int | None = None
    """Lease of the last receive; messages of one receive share it."""
    visible_at_ms: int | None = None
    """Time at which the message becomes visible: Unix milliseconds."""
    reason: str = ""
    target: Target | None = None
    """Topic id and partition that messages are moved to."""
    message_count: int = 1
    """Number of messages of the event, as far as it is known."""
    partition: int = 0
    """Partition of the queue."""


class _Held(NamedTuple):
    """State of a message that was received and is not done."""

    receive_count: int
    holder: str
    lease_id: int


class _Repeatable(NamedTuple):
    lease_id: int
    runs: tuple[Run, ...]
    received_ms: int


_NEVER: Final = _Held(0, "", 0)
SNAPSHOT_PARTS: Final = (
    SnapshotStarted,
    SnapshotMoreMoves,
    SnapshotMoreAttempts,
    SnapshotRuns,
    SnapshotEnded,
)
"""Entries of a snapshot; with another one in between it is incomplete, and ignored."""


@final
class _Snapshot:
    """State from a snapshot so far."""

    def __init__(self, began: SnapshotStarted) -> None:
        self.attempts = list(began.attempts)
        self.held: dict[int, _Held] = {}
        self._next_lease_id = began.next_lease_id
        self._at = 0
        self._run_count = 0

    def add(self, part: SnapshotRuns) -> None:
        for run in part.runs:
            first = self._at + run.gap
            self._at = first + run.count
            self._run_count += 1
            if run.receive_count:
                holder, _ = part.texts[run.text]
                held = _Held(run.receive_count, holder, self._next_lease_id - run.lease_ago)
                self.held.update(dict.fromkeys(range(first, self._at), held))

    def is_complete(self, ended: SnapshotEnded) -> bool:
        return self._run_count == ended.run_count


@final
class QueueHistory:
    """Turns frames into events."""

    def __init__(self, partition: int = 0) -> None:
        """Start without messages of this partition of the queue."""
        self._partition = partition
        self._held: dict[int, _Held] = {}
        self._attempts: OrderedDict[bytes, _Repeatable] = OrderedDict()
        self._snapshot: _Snapshot | None = None

    def received(self, offset: int) -> tuple[int, str]:
        """Return the receive count of a message that is not done, and its last receiver."""
        held = self._held.get(offset, _NEVER)
        return held.receive_count, held.holder

    def pass_over(self, frame: JournalFrame) -> None:
        """Apply a frame without yielding its events."""
        for _ in self.events(0, frame):
            pass

    def events(self, journal_offset: int, frame: JournalFrame) -> Iterator[HistoryEvent]:
        """Yield the events of a frame; it is applied when all of them were yielded."""
        for entry in frame.entries:
            if isinstance(entry, SNAPSHOT_PARTS):
                self._take_snapshot(entry, frame.now_ms)
                continue
            self._snapshot = None
            tell = _Teller(self._partition, journal_offset, frame.now_ms)
            yield from self._events(tell, entry)

    def _events(  # noqa: C901, PLR0912 (one branch each)
        self, tell: "_Teller", entry: AnyEntry
    ) -> Iterator[HistoryEvent]:
        match entry:
            case Received():
                yield from self._received(tell, entry)
            case ReceiveRepeated():
                yield from self._repeated(tell, entry)
            case Extended():
                for offset in _offsets(entry.runs):
                    until = entry.visible_at_ms
                    yield tell.of(EventKind.EXTEND, offset, self._of(offset), visible_at_ms=until)
            case Released():
                for offset in _offsets(entry.runs):
                    held, until, reason = self._of(offset), entry.visible_at_ms, entry.reason
                    yield tell.of(
                        EventKind.RELEASE, offset, held, visible_at_ms=until, reason=reason
                    )
            case Returned():
                yield from self._returned(tell, entry)
            case Delayed():
                for first, count, visible_at_ms in entry.runs:
                    for offset in range(first, first + count):
                        yield tell.of(
                            EventKind.DEFER, offset, self._of(offset), visible_at_ms=visible_at_ms
                        )
            case Deleted() | Expired():
                kind = EventKind.DELETE if isinstance(entry, Deleted) else EventKind.EXPIRE
                for offset in _offsets(entry.runs):
                    yield tell.of(kind, offset, self._held.pop(offset, _NEVER))
            case DeadLettered() | Redriven():
                is_dead = isinstance(entry, DeadLettered)
                kind = EventKind.DEAD_LETTER if is_dead else EventKind.REDRIVE
                reason = entry.reason if isinstance(entry, DeadLettered) else ""
                for offset in _offsets(entry.runs):
                    held = self._of(offset)
                    yield tell.of(kind, offset, held, reason=reason, target=entry.target)
            case Purged() | LogStartAdvanced() | Seeked():
                yield self._removed(tell, entry)
            case _:
                yield from _about_many(tell, entry)

    def _of(self, offset: int) -> _Held:
        return self._held.get(offset, _NEVER)

    def _received(self, tell: "_Teller", entry: Received) -> Iterator[HistoryEvent]:
        if entry.attempt_id is not None:
            attempt = _Repeatable(entry.lease_id, tuple(entry.runs), tell.time_ms)
            self._remember(entry.attempt_id, attempt, tell.time_ms)
        for offset in _offsets(entry.runs):
            held = _Held(self._of(offset).receive_count + 1, entry.holder, entry.lease_id)
            self._held[offset] = held
            yield tell.of(EventKind.RECEIVE, offset, held, visible_at_ms=entry.visible_at_ms)

    def _remember(self, attempt_id: bytes, attempt: _Repeatable, now_ms: int) -> None:
        self._attempts.pop(attempt_id, None)
        self._attempts[attempt_id] = attempt
        while now_ms - next(iter(self._attempts.values())).received_ms > _ATTEMPT_WINDOW_MS:
            self._attempts.popitem(last=False)

    def _repeated(self, tell: "_Teller", entry: ReceiveRepeated) -> Iterator[HistoryEvent]:
        attempt = self._attempts.get(entry.attempt_id)
        for offset in _offsets([] if attempt is None else attempt.runs):
            yield tell.of(
                EventKind.REPEAT, offset, self._of(offset), visible_at_ms=entry.visible_at_ms
            )

    def _returned(self, tell: "_Teller", entry: Returned) -> Iterator[HistoryEvent]:
        for offset in _offsets(entry.runs):
            held = self._held.pop(offset, _NEVER)
            left = held._replace(receive_count=max(0, held.receive_count - 1))
            if left.receive_count:
                self._held[offset] = left
            told = held._replace(receive_count=left.receive_count)
            yield tell.of(EventKind.RETURN, offset, told, visible_at_ms=entry.visible_at_ms)

    def _removed(self, tell: "_Teller", entry: Purged | LogStartAdvanced | Seeked) -> HistoryEvent:
        if isinstance(entry, Seeked):
            self._held.clear()
            self._attempts.clear()
            return tell.many(EventKind.SEEK, below_offset=entry.offset)
        is_purge = isinstance(entry, Purged)
        below = entry.end if isinstance(entry, Purged) else entry.offset
        gone = [offset for offset in self._held if offset < below]
        for offset in gone:
            del self._held[offset]
        return tell.many(EventKind.PURGE if is_purge else EventKind.TRIM, below_offset=below)

    def _take_snapshot(self, entry: AnyEntry, now_ms: int) -> None:
        snapshot = self._snapshot
        if isinstance(entry, SnapshotStarted):
            self._snapshot = _Snapshot(entry)
        elif snapshot is None:
            return
        elif isinstance(entry, SnapshotRuns):
            snapshot.add(entry)
        elif isinstance(entry, SnapshotMoreAttempts):
            snapshot.attempts += entry.attempts
        elif isinstance(entry, SnapshotEnded):
            self._snapshot = None
            if snapshot.is_complete(entry):
                self._held = snapshot.held
                self._attempts = OrderedDict(
                    (each.attempt_id, _kept(each))
                    for each in snapshot.attempts
                    if now_ms - each.received_ms <= _ATTEMPT_WINDOW_MS
                )


@final
class _Teller:
    """Makes events of one frame."""

    def __init__(self, partition: int, journal_offset: int, time_ms: int) -> None:
        self._partition = partition
        self._journal_offset = journal_offset
        self.time_ms = time_ms

    def of(
        self,
        kind: EventKind,
        offset: int,
        held: _Held,
        *,
        visible_at_ms: int | None = None,
        reason: str = "",
        target: Target | None = None,
    ) -> HistoryEvent:
        """Return an event of one message."""
        return HistoryEvent(
            self._journal_offset,
            self.time_ms,
            kind,
            offset,
            None,
            held.holder,
            held.receive_count,
            held.lease_id or None,
            visible_at_ms,
            reason,
            target,
            partition=self._partition,
        )

    def many(
        self,
        kind: EventKind,
        *,
        below_offset: int | None = None,
        reason: str = "",
        target: Target | None = None,
        message_count: int = 0,
    ) -> HistoryEvent:
        """Return an event of messages that are not listed."""
        return HistoryEvent(
            self._journal_offset,
            self.time_ms,
            kind,
            below_offset=below_offset,
            reason=reason,
            target=target,
            message_count=message_count,
            partition=self._partition,
        )


def _about_many(tell: _Teller, entry: AnyEntry) -> Iterator[HistoryEvent]:
    match entry:
        case Moved():
            count = entry.count
            yield tell.many(EventKind.MOVED, target=entry.target, message_count=count)
        case MoveFailed():
            yield tell.many(
                EventKind.MOVE_FAILED,
                target=entry.target,
                message_count=entry.count,
                reason=entry.reason,
            )
        case TargetChanged():
            yield tell.many(EventKind.RETARGET, target=entry.target)
        case RedriveStarted():
            count = entry.to_move
            yield tell.many(EventKind.REDRIVE_START, below_offset=entry.end, message_count=count)
        case RedriveEnded():
            yield tell.many(EventKind.REDRIVE_END, reason=entry.reason)
        case _:
            return  # Progress of a redrive is no event.


def _kept(attempt: Attempt) -> _Repeatable:
    return _Repeatable(attempt.lease_id, attempt.runs, attempt.received_ms)


def _offsets(runs: list[Run] | tuple[Run, ...]) -> Iterator[int]:
    for first, count in runs:
        yield from range(first, first + count)
