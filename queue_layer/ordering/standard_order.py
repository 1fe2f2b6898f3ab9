"""Standard order: log order, and failing messages starve no others.

Pure: no clock, no I/O. Costs depend on the number of ranges that were returned, delayed or taken
out of order; an untouched backlog of any length is one range.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import final

from tidelog.queue_layer.collections.range_map import RangeMap
from tidelog.queue_layer.collections.redeliverable import RedeliverableMessages
from tidelog.queue_layer.ordering.delivery_order import (
    Candidates,
    GroupSize,
    RecordFields,
    no_groups,
    ranked,
    take_turns,
)


@final
class StandardOrder:
    """Redeliverable messages, the longest visible first, and unreceived ones in log order.

    If there are both, each kind gets half of a receive as far as it can fill it, and they take
    turns in being first. So a consumer that releases all of its messages also gets new ones, and
    redeliverable messages do not wait behind a backlog.

    Invariant: holes are in `[_next, _end)`, and none begins at `_next`.
    """

    needs_all_records = False

    def __init__(self, start: int) -> None:
        self._next = start
        """First unreceived message."""
        self._end = start
        self._holes: RangeMap[None] = RangeMap()
        """Invisible messages after `_next`."""
        self._returned = RedeliverableMessages()
        """Visible messages before `_next`."""

    def on_records(self, first: int, end: int, fields: Sequence[RecordFields] | None) -> None:
        """Add records."""
        del fields
        assert first == self._end
        self._end = end

    def on_invisible(self, first: int, end: int, *, is_in_flight: bool) -> None:
        """Make messages invisible: in flight, or delayed."""
        del is_in_flight
        if first == self._next and not self._holes.ranges:
            self._next = end
        else:
            self._take(first, end)

    def on_dead_lettered(self, first: int, end: int) -> None:
        """Make messages dead letters."""
        self._take(first, end)

    def on_deleted(self, first: int, end: int) -> None:
        """Remove messages."""
        if end > self._next or self._returned.ranges.ranges:
            self._take(first, end)

    def on_visible(self, first: int, end: int, since_ms: int) -> None:
        """Make messages visible again."""
        if first < self._next:
            self._returned.add(first, min(end, self._next), since_ms)
        if end > self._next:
            self._holes.cut(max(first, self._next), end)

    def candidates(self, limit: int, turn: int) -> Iterator[Candidates]:
        """Yield ranges of messages to deliver, all of one rank."""
        if not self._returned.ranges.ranges:
            if not self._holes.ranges and self._next < self._end:
                return iter([(self._next, self._end, 0)])
            return self._unreceived()
        share = max(1, limit // 2)
        unreceived, returned = (self._unreceived(), share), (ranked(self._returned), share)
        return take_turns([returned, unreceived] if turn % 2 else [unreceived, returned])

    def blocked(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield nothing: no message of a standard queue waits for another."""
        del first, end
        return iter(())

    def largest_groups(self, limit: int) -> Generator[None, None, list[GroupSize]]:
        """Return nothing: groups do not matter here."""
        return no_groups(limit)

    def _unreceived(self) -> Iterator[Candidates]:
        at = self._next
        for first, end, _ in self._holes:
            yield at, first, 0
            at = end
        if at < self._end:
            yield at, self._end, 0

    def _take(self, first: int, end: int) -> None:
        if first < self._next:
            self._returned.remove(first, min(end, self._next))
        if end <= self._next:
            return
        if first > self._next:
            self._holes.cut(first, end)
            self._holes.put(first, end, None)
            return
        self._holes.cut(self._next, end)
        self._next = end
        hole = self._holes.starting_at(end)
        if hole is not None:
            self._holes.cut(end, hole[0])
            self._next = hole[0]
