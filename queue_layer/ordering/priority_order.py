"""Priority order: priorities with weights, or strict ones.

Pure: no clock, no I/O. It stores each message that is not done: some 10 bytes where neighbours
have the same priority, some 300 where each priority differs from the one before.
"""

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import final

from tidelog.queue_layer.collections.range_map import RangeMap
from tidelog.queue_layer.collections.redeliverable import RedeliverableMessages
from tidelog.queue_layer.ordering.delivery_order import (
    Candidates,
    GroupSize,
    MakeOrder,
    RecordFields,
    no_groups,
    ranked,
    take_turns,
)


class _Priority:
    """Visible messages of one priority."""

    __slots__ = ("returned", "unreceived")

    def __init__(self) -> None:
        self.unreceived: RangeMap[None] = RangeMap()
        self.returned = RedeliverableMessages()

    def candidates(self, limit: int, turn: int, rank: int) -> Iterator[Candidates]:
        """Yield messages of this rank, in the order of a queue without priorities."""
        unreceived = ((first, end, rank) for first, end, _ in self.unreceived)
        if not len(self.returned):
            return unreceived
        share = max(1, limit // 2)
        kinds = [(ranked(self.returned, rank), share), (unreceived, share)]
        return take_turns(kinds if turn % 2 else kinds[::-1])


@final
class PriorityOrder:
    """Each priority gets its weight of the deliveries, the most urgent first.

    So urgent messages overtake others, and none of the others waits without end. Deliveries that a
    priority cannot use go to the others, the most urgent first. If it is strict, a message is
    delivered when no message of a more urgent priority is visible. The rank of a message is its
    priority.
    """

    needs_all_records = True

    def __init__(
        self,
        start: int,
        weights: Sequence[int],
        *,
        is_strict: bool = False,
        default: int | None = None,
    ) -> None:
        """Have a priority for each weight; messages without one get `default`, or the last."""
        del start
        self._cycle = _cycle(weights)
        self._priorities = [_Priority() for _ in weights]
        self._is_strict = is_strict
        self._default = len(weights) - 1 if default is None else default
        self._priority_of: RangeMap[int] = RangeMap()
        """Priorities of all messages that are not done."""

    def on_records(self, first: int, end: int, fields: Sequence[RecordFields] | None) -> None:
        """Add records; priorities beyond the last priority are in the last priority."""
        if fields is None:
            self._add(first, end, self._default)
            return
        at = first
        while at < end:
            priority = fields[at - first].priority
            stop = at + 1
            while stop < end and fields[stop - first].priority == priority:
                stop += 1
            self._add(at, stop, self._number(priority))
            at = stop

    def _number(self, priority: int | None) -> int:
        if priority is None:
            return self._default
        return min(max(priority, 0), len(self._priorities) - 1)

    def _add(self, first: int, end: int, priority: int) -> None:
        self._priority_of.put(first, end, priority)
        self._priorities[priority].unreceived.put(first, end, None)

    def on_invisible(self, first: int, end: int, *, is_in_flight: bool) -> None:
        """Make messages invisible: in flight, or delayed."""
        del is_in_flight
        self._take(first, end)

    def on_visible(self, first: int, end: int, since_ms: int) -> None:
        """Make messages visible again."""
        for piece_first, piece_end, priority in self._priority_of.pieces(first, end):
            self._priorities[priority].returned.add(piece_first, piece_end, since_ms)

    def on_dead_lettered(self, first: int, end: int) -> None:
        """Make messages dead letters."""
        self._take(first, end)

    def on_deleted(self, first: int, end: int) -> None:
        """Remove messages."""
        self._take(first, end)
        self._priority_of.cut(first, end)

    def candidates(self, limit: int, turn: int) -> Iterator[Candidates]:
        """Yield the share of each priority, and then the rest; all of each if it is strict."""
        sources = [
            priority.candidates(limit, turn, number)
            for number, priority in enumerate(self._priorities)
        ]
        if self._is_strict:
            return chain.from_iterable(sources)
        begin = turn * limit
        places = [self._cycle[(begin + place) % len(self._cycle)] for place in range(limit)]
        return take_turns([(each, places.count(number)) for number, each in enumerate(sources)])

    def blocked(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield nothing: no message waits for another."""
        del first, end
        return iter(())

    def largest_groups(self, limit: int) -> Generator[None, None, list[GroupSize]]:
        """Return nothing: groups do not matter here."""
        return no_groups(limit)

    def _take(self, first: int, end: int) -> None:
        for piece_first, piece_end, priority in self._priority_of.pieces(first, end):
            self._priorities[priority].unreceived.cut(piece_first, piece_end)
            self._priorities[priority].returned.remove(piece_first, piece_end)


def priority_order(
    weights: Sequence[int], *, is_strict: bool = False, default: int | None = None
) -> MakeOrder:
    """Return the factory of orders with these weights, the most urgent first."""
    return partial(PriorityOrder, weights=weights, is_strict=is_strict, default=default)


def _cycle(weights: Sequence[int]) -> list[int]:
    """Return priorities, each as often as its weight, spread evenly."""
    places = [
        ((place + 0.5) / weight, priority)
        for priority, weight in enumerate(weights)
        for place in range(weight)
    ]
    return [priority for _, priority in sorted(places)]
