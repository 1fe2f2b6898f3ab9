"""Runs of messages with equal status: received, delayed or skipped ones, with their counts.

Pure: no clock, no I/O. Time passes only by `advance`: until then an ended lease still counts.
"""

from collections.abc import Iterator, Sequence
from typing import Final, final

from tidelog.queue_layer.collections.range_map import RangeMap
from tidelog.queue_layer.collections.visibility_timers import VisibilityTimers
from tidelog.queue_layer.state.message_state import MessageStatus, SnapshotState
from tidelog.wire.messages.queues import MessageState

Piece = tuple[int, int, MessageStatus]
"""First offset, end, and the status of all messages in between."""

_STATES: Final = (
    (MessageState.DELAYED, MessageState.VISIBLE),
    (MessageState.IN_FLIGHT, MessageState.VISIBLE),
    (MessageState.DEAD, MessageState.DEAD),
)
"""States by `SnapshotState`, before the message is visible and from then on."""

WITHOUT_LIMIT: Final = 1 << 62
"""Number of deliveries that no message reaches."""


@final
class MessageRuns:
    """All messages that are neither unreceived nor deleted.

    Invariant: `counts` and `exhausted_count` are the results of a walk over all runs at `time_ms`,
    and cost no walk.
    """

    __slots__ = (
        "_runs",
        "counts",
        "exhausted_count",
        "free_time",
        "max_deliveries",
        "pieces",
        "time_ms",
        "timers",
    )

    def __init__(self, *, max_deliveries: int = WITHOUT_LIMIT) -> None:
        self.time_ms = 0
        self.exhausted_count = 0
        """Messages that were received `max_deliveries` times, and are no dead letters."""
        self.max_deliveries = max_deliveries
        """Deliveries after which a message is a dead letter; `WITHOUT_LIMIT` for never."""
        self.counts = [0, 0, 0, 0]
        """Messages by `MessageState`, which is never `BLOCKED` here."""
        self._runs: RangeMap[MessageStatus] = RangeMap()
        self.pieces = self._runs.pieces
        """Yields the pieces in a range of offsets; no changes meanwhile."""
        self.timers = VisibilityTimers(self._is_current)
        """Timers of messages that become visible."""
        self.free_time = self.timers.free_time
        """Returns the first time from one on at which not very many become visible."""

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._runs)

    def __iter__(self) -> Iterator[Piece]:
        """Yield all runs, ascending."""
        return iter(self._runs)

    @property
    def first(self) -> int | None:
        """Lowest offset."""
        return self._runs.first

    def state(self, status: MessageStatus) -> MessageState:
        """Return the current state of messages with a status."""
        return _STATES[status.stored][status.visible_at_ms <= self.time_ms]

    def put(self, first: int, end: int, status: MessageStatus) -> MessageState:
        """Add messages where there are none; return their state."""
        begins = self._runs.put(first, end, status)
        state = _STATES[status.stored][status.visible_at_ms <= self.time_ms]
        self.counts[state] += end - first
        if status.receive_count >= self.max_deliveries and self.is_exhausted(status):
            self.exhausted_count += end - first
        if state is MessageState.IN_FLIGHT or state is MessageState.DELAYED:
            self.timers.add(status.visible_at_ms, begins)
        return state

    def is_exhausted(self, status: MessageStatus) -> bool:
        """Return whether messages with a status had all their deliveries, and are not dead."""
        is_open = status.stored is not SnapshotState.DEAD
        return status.receive_count >= self.max_deliveries and is_open

    def fill(self, pieces: Sequence[Piece]) -> None:
        """Replace all messages, by ascending ones; time stays."""
        self._runs.fill(pieces)
        self.counts, self.exhausted_count = [0, 0, 0, 0], 0
        deadlines: list[tuple[int, int]] = []
        for first, end, status in pieces:
            state = self.state(status)
            self.counts[state] += end - first
            if self.is_exhausted(status):
                self.exhausted_count += end - first
            if state in (MessageState.IN_FLIGHT, MessageState.DELAYED):
                deadlines.append((status.visible_at_ms, first))
        self.timers.fill(deadlines)

    def cut(self, first: int, end: int) -> list[Piece]:
        """Remove messages and return them."""
        pieces = self._runs.cut(first, end)
        for piece_first, piece_end, status in pieces:
            state = _STATES[status.stored][status.visible_at_ms <= self.time_ms]
            self.counts[state] -= piece_end - piece_first
            if status.receive_count >= self.max_deliveries and self.is_exhausted(status):
                self.exhausted_count -= piece_end - piece_first
        rest = self._runs.ranges.get(end) if pieces else None
        # The rest of a run has the status of the last piece; another run has its timer.
        is_cut = rest is not None and rest[1] is pieces[-1][2]
        if rest is not None and is_cut and self._is_current(rest[1].visible_at_ms, end):
            self.timers.add(rest[1].visible_at_ms, end)
        return pieces

    def next_deadline_ms(self) -> int | None:
        """Return the time at which the next messages become visible by themselves."""
        return self.timers.next_ms()

    def advance(self, now_ms: int) -> list[Piece]:
        """Let time pass, if it does; return messages that become visible, the earliest first."""
        if now_ms <= self.time_ms:
            return []
        due = self.timers.pop_due(now_ms)
        pieces: list[Piece] = []
        for _, first in due:
            found = self._runs.starting_at(first)
            assert found is not None
            end, status = found
            self.counts[self.state(status)] -= end - first
            self.counts[MessageState.VISIBLE] += end - first
            pieces.append((first, end, status))
        self.time_ms = now_ms
        return pieces

    def time_of(self, count: int, now_ms: int) -> int:
        """Return the time by which `count` runs become visible, `now_ms` at most."""
        return self.timers.time_of(count, now_ms)

    def clear(self) -> None:
        """Remove all; time stays."""
        self._runs.clear()
        self.timers.clear()
        self.counts, self.exhausted_count = [0, 0, 0, 0], 0

    def _is_current(self, time_ms: int, first: int) -> bool:
        found = self._runs.starting_at(first)
        if found is None:
            return False
        status = found[1]
        return (
            status.visible_at_ms == time_ms
            and time_ms > self.time_ms
            and status.stored is not SnapshotState.DEAD
        )
