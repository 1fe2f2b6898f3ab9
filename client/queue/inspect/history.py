"""What happened to the messages of one partition of a queue, as its journal says it.

Pure: no clock, no I/O. Entries speak of runs of messages, and of a delete they say neither who had
the message nor how often it was received: that follows from what came before. So frames are taken
in their order, from a snapshot on (`wire.messages.queue_journal.Frame.snapshot_offset`) or from
the first. Memory: what somebody has received and not settled, message by message.
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
"""No receive is repeated later."""


class EventKind(StrEnum):
    """What happened."""

    RECEIVE = "receive"
    REPEAT = "repeat"
    """The answer of a receive was lost, and its messages were handed out again, not counted."""
    EXTEND = "extend"
    DELETE = "delete"
    """Nobody had received it if the count is 0: it was cancelled, or is a chunk of a large one."""
    RELEASE = "release"
    RETURN = "return"
    """Nobody saw it: the receive does not count."""
    DEFER = "defer"
    """Its time had not come."""
    DEAD_LETTER = "dead-letter"
    """It is given up, and is moved as soon as there is a place for it."""
    REDRIVE = "redrive"
    """It is moved back to where it came from, or elsewhere."""
    EXPIRE = "expire"
    """It was there for longer than the queue keeps messages."""
    MOVED = "moved"
    """So many messages, the first ones on their way, are at their target."""
    MOVE_FAILED = "move-failed"
    """So many cannot be moved there, and can be received again."""
    RETARGET = "retarget"
    """All that is on its way goes elsewhere."""
    PURGE = "purge"
    """All below an offset are done away with."""
    TRIM = "trim"
    """The topic has lost all below an offset."""
    SEEK = "seek"
    """All from an offset on can be received as if for the first time, what is below is done. The
    first event of a queue is one."""
    REDRIVE_START = "redrive-start"
    REDRIVE_END = "redrive-end"


@final
class HistoryEvent(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened, to one message or to many."""

    journal_offset: int
    """Where in the journal it stands; what was decided at once may stand in one place."""
    time_ms: int
    """Unix milliseconds by the time of the queue, which never runs backwards."""
    kind: EventKind
    offset: int | None = None
    """Of the message; `None` if it is about many."""
    below_offset: int | None = None
    """All messages below it (purge, trim, redrive-start), or where a seek went to."""
    holder: str = ""
    """Who had received the message last."""
    receive_count: int = 0
    """How often it had been received, this time too."""
    lease_id: int | None = None
    """Of the last receive; messages of one receive share it."""
    visible_at_ms: int | None = None
    """When others may have it, if nothing happens: Unix milliseconds."""
    reason: str = ""
    target: Target | None = None
    """Topic id and partition to which messages go."""
    message_count: int = 1
    """How many messages it is about, as far as that is known."""
    partition: int = 0
    """Of the queue."""


class _Held(NamedTuple):
    """Of a message that was received and is not done."""

    receive_count: int
    holder: str
    lease_id: int


class _Repeatable(NamedTuple):
    lease_id: int
    runs: tuple[Run, ...]
    received_ms: int


_NEVER: Final = _Held(0, "", 0)
_GOES_ON: Final = (SnapshotMoreMoves, SnapshotMoreAttempts, SnapshotRuns, SnapshotEnded)


@final
class _Snapshot:
    """What came of a snapshot so far."""

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
    """Tells frame by frame what happened."""

    def __init__(self, partition: int = 0) -> None:
        """Know of no message of this partition of the queue."""
        self._partition = partition
        self._held: dict[int, _Held] = {}
        self._attempts: OrderedDict[bytes, _Repeatable] = OrderedDict()
        self._snapshot: _Snapshot | None = None

    def received(self, offset: int) -> tuple[int, str]:
        """Return how often a message was received that is not done, and by whom last."""
        held = self._held.get(offset, _NEVER)
        return held.receive_count, held.holder

    def pass_over(self, frame: JournalFrame) -> None:
        """Take a frame of which nothing is to be told."""
        for _ in self.events(0, frame):
            pass

    def events(self, journal_offset: int, frame: JournalFrame) -> Iterator[HistoryEvent]:
        """Yield what a frame says; it is taken when all of it was yielded."""
        for entry in frame.entries:
            if isinstance(entry, (SnapshotStarted, *_GOES_ON)):
                self._take_snapshot(entry, frame.now_ms)
                continue
            self._snapshot = None  # One that was not ended is none.
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
        """Return what happened to one message."""
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
        """Return what happened to messages that are not named one by one."""
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
            return  # How far a redrive has looked is no event.


def _kept(attempt: Attempt) -> _Repeatable:
    return _Repeatable(attempt.lease_id, attempt.runs, attempt.received_ms)


def _offsets(runs: list[Run] | tuple[Run, ...]) -> Iterator[int]:
    for first, count in runs:
        yield from range(first, first + count)
