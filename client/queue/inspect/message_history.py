"""History of one message of a queue, from the journal of its partition.

Pure: no clock, no I/O. A purge, trim or seek is about all messages below or from an offset on, and
a move about the first of the messages that wait for a target. Such an event is one of this message
if it changes the message. So the history follows whether the message is done, and the moves.
"""

from collections.abc import Iterable, Iterator
from typing import final

from msgspec.structs import replace

from tidelog.client.queue.inspect.history import SNAPSHOT_PARTS, HistoryEvent, QueueHistory
from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    DeadLettered,
    Delayed,
    Deleted,
    Expired,
    JournalFrame,
    LogStartAdvanced,
    Moved,
    MoveFailed,
    Purged,
    Received,
    Redriven,
    Seeked,
    SnapshotEnded,
    SnapshotMoreMoves,
    SnapshotMoves,
    SnapshotRuns,
    SnapshotStarted,
    Target,
    TargetChanged,
)
from tidelog.wire.messages.queues import Run


@final
class _State:
    """State of the message, as far as events about many messages depend on it."""

    def __init__(self, moves: Iterable[SnapshotMoves] = ()) -> None:
        self.is_done = False
        self.is_new = True
        """Whether nothing has happened to it: a seek changes nothing then."""
        self._moves: dict[Target, list[int]] = {}
        """Messages on their way to each target, in order."""
        self.add_snapshot(moves)

    def add_snapshot(self, moves: Iterable[SnapshotMoves]) -> None:
        for each in moves:
            for runs in each.batches:
                self.add(each.target, runs)

    def add(self, target: Target, runs: Iterable[Run]) -> None:
        pending = self._moves.setdefault(target, [])
        for first, count in runs:
            pending.extend(range(first, first + count))

    def pop(self, target: Target, count: int) -> list[int]:
        """Remove and return the first messages on their way to a target."""
        pending = self._moves.get(target, [])
        taken = pending[:count]
        del pending[:count]
        return taken

    def retarget(self, source: Target, target: Target) -> list[int]:
        """Redirect all messages on their way to one target; return them."""
        pending = self._moves.pop(source, [])
        self._moves.setdefault(target, []).extend(pending)
        return pending

    def drop(self, end: int) -> None:
        """Forget moves of messages below an offset."""
        for target, pending in self._moves.items():
            self._moves[target] = [at for at in pending if at >= end]


@final
class _Snapshot:
    """State from a snapshot so far."""

    def __init__(self, began: SnapshotStarted, offset: int) -> None:
        self.state = _State(began.moves)
        self.state.is_done = offset < began.cursor
        self._offset = offset
        self._at = 0
        self._run_count = 0

    def add(self, part: SnapshotRuns) -> None:
        for run in part.runs:
            first = self._at + run.gap
            self._at = first + run.count
            self._run_count += 1
            if first <= self._offset < self._at:
                self.state.is_done = False
                self.state.is_new = not (run.receive_count or run.visible_in_ms)

    def is_complete(self, ended: SnapshotEnded) -> bool:
        return self._run_count == ended.run_count


@final
class MessageHistory:
    """Turns frames into the events of one message."""

    def __init__(self, partition: int, offset: int) -> None:
        """Start at the beginning of a journal, or at a snapshot."""
        self._offset = offset
        self._history = QueueHistory(partition)
        self._state = _State()
        self._snapshot: _Snapshot | None = None

    def pass_over(self, frame: JournalFrame) -> None:
        """Apply a frame without yielding its events."""
        for _ in self.events(0, frame):
            pass

    def events(self, journal_offset: int, frame: JournalFrame) -> Iterator[HistoryEvent]:
        """Yield the events of a frame; it is applied when all of them were yielded."""
        for entry in frame.entries:
            held = self._history.received(self._offset)
            found = self._history.events(journal_offset, JournalFrame(frame.now_ms, [entry]))
            is_changed = self._apply(entry)
            for event in found:
                if event.offset == self._offset:
                    yield event
                elif event.offset is None and is_changed:
                    yield replace(
                        event,
                        offset=self._offset,
                        receive_count=held[0],
                        holder=held[1],
                        message_count=1,
                    )

    def _apply(self, entry: AnyEntry) -> bool:  # noqa: C901, PLR0912 (one branch each)
        """Apply an entry; return whether one about many messages changes this message."""
        state = self._state
        if not isinstance(entry, SNAPSHOT_PARTS):
            self._snapshot = None
        match entry:
            case Seeked():
                return self._seeked(entry)
            case Purged():
                return self._removed(entry.end)
            case LogStartAdvanced():
                return self._removed(entry.offset)
            case Moved() | MoveFailed():
                is_it = self._offset in state.pop(entry.target, entry.count)
                state.is_done = state.is_done or (is_it and isinstance(entry, Moved))
                return is_it
            case TargetChanged():
                return self._offset in state.retarget(entry.source, entry.target)
            case DeadLettered() | Redriven():
                state.add(entry.target, entry.runs)
                state.is_new = state.is_new and not self._is_in(entry.runs)
            case Deleted() | Expired():
                state.is_done = state.is_done or self._is_in(entry.runs)
            case Received():
                state.is_new = state.is_new and not self._is_in(entry.runs)
            case Delayed():
                runs = [(first, count) for first, count, _ in entry.runs]
                state.is_new = state.is_new and not self._is_in(runs)
            case SnapshotStarted():
                self._snapshot = _Snapshot(entry, self._offset)
            case SnapshotRuns():
                if self._snapshot is not None:
                    self._snapshot.add(entry)
            case SnapshotMoreMoves():
                if self._snapshot is not None:
                    self._snapshot.state.add_snapshot(entry.moves)
            case SnapshotEnded():
                if self._snapshot is not None and self._snapshot.is_complete(entry):
                    self._state = self._snapshot.state
                self._snapshot = None
            case _:
                pass  # It is about single messages, or changes none.
        return False

    def _seeked(self, entry: Seeked) -> bool:
        state = self._state
        is_below = self._offset < entry.offset
        is_changed = not state.is_done if is_below else state.is_done or not state.is_new
        self._state = _State()
        self._state.is_done = is_below
        return is_changed

    def _removed(self, below: int) -> bool:
        state = self._state
        state.drop(below)
        is_gone = self._offset < below and not state.is_done
        state.is_done = state.is_done or is_gone
        return is_gone

    def _is_in(self, runs: Iterable[Run]) -> bool:
        return any(first <= self._offset < first + count for first, count in runs)
