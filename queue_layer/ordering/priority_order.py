"""The order of a queue with priorities: lanes with weights.

Pure: no clock, no I/O. It knows of each message that is not done: some 10 bytes where neighbours
have the same priority, some 300 where each has another one than the one before.
"""

from collections.abc import Iterator, Sequence
from typing import final

from tidelog.queue_layer.collections.range_map import RangeMap
from tidelog.queue_layer.collections.redeliverable import RedeliverableMessages
from tidelog.queue_layer.ordering.delivery_order import MakeOrder, RecordFields
from tidelog.queue_layer.ordering.round_robin import shared


class _Lane:
    """The visible messages of one priority."""

    __slots__ = ("returned", "unreceived")

    def __init__(self) -> None:
        self.unreceived: RangeMap[None] = RangeMap()
        self.returned = RedeliverableMessages()

    def candidates(self, limit: int, turn: int) -> Iterator[tuple[int, int]]:
        """Yield messages as a queue without priorities does."""
        unreceived = ((first, end) for first, end, _ in self.unreceived)
        if not len(self.returned):
            return unreceived
        share = max(1, limit // 2)
        kinds = [(iter(self.returned), share), (unreceived, share)]
        return shared(kinds if turn % 2 else kinds[::-1])


@final
class PriorityOrder:
    """Each lane gets its weight of what is handed out, the most urgent one first.

    So urgent messages overtake others, and none of the others waits for ever. What a lane cannot
    use goes to the others, the most urgent first.
    """

    needs_all_records = True

    def __init__(self, start: int, weights: Sequence[int]) -> None:
        del start
        self._weights = tuple(weights)
        self._cycle = _cycle(self._weights)
        self._lanes = [_Lane() for _ in self._weights]
        self._lane_of: RangeMap[int] = RangeMap()
        """Of all messages that are not done."""

    def on_records(self, first: int, end: int, fields: Sequence[RecordFields] | None) -> None:
        """Learn of records; priorities beyond the last lane are in the last lane."""
        if fields is None:
            self._add(first, end, 0)
            return
        at = first
        while at < end:
            lane = fields[at - first].lane
            stop = at + 1
            while stop < end and fields[stop - first].lane == lane:
                stop += 1
            self._add(at, stop, min(max(lane, 0), len(self._lanes) - 1))
            at = stop

    def _add(self, first: int, end: int, lane: int) -> None:
        self._lane_of.put(first, end, lane)
        self._lanes[lane].unreceived.put(first, end, None)

    def on_invisible(self, first: int, end: int, *, is_leased: bool) -> None:
        """Learn that messages are leased, or delayed."""
        del is_leased
        self._take(first, end)

    def on_visible(self, first: int, end: int, since_ms: int) -> None:
        """Learn that messages are visible again."""
        for piece_first, piece_end, lane in self._lane_of.pieces(first, end):
            self._lanes[lane].returned.add(piece_first, piece_end, since_ms)

    def on_dead_lettered(self, first: int, end: int) -> None:
        """Learn that messages are dead letters."""
        self._take(first, end)

    def on_deleted(self, first: int, end: int) -> None:
        """Learn that messages are gone."""
        self._take(first, end)
        self._lane_of.cut(first, end)

    def candidates(self, limit: int, turn: int) -> Iterator[tuple[int, int]]:
        """Yield what each lane is due, and then what is left."""
        begin = turn * limit
        places = [self._cycle[(begin + place) % len(self._cycle)] for place in range(limit)]
        return shared(
            [
                (lane.candidates(limit, turn), places.count(number))
                for number, lane in enumerate(self._lanes)
            ]
        )

    def blocked(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield nothing: no message waits for another."""
        del first, end
        return iter(())

    def _take(self, first: int, end: int) -> None:
        for piece_first, piece_end, lane in self._lane_of.pieces(first, end):
            self._lanes[lane].unreceived.cut(piece_first, piece_end)
            self._lanes[lane].returned.remove(piece_first, piece_end)


def priority_order(weights: Sequence[int]) -> MakeOrder:
    """Return what makes orders for lanes of these weights, the most urgent first."""

    def make(start: int) -> PriorityOrder:
        return PriorityOrder(start, weights)

    return make


def _cycle(weights: Sequence[int]) -> list[int]:
    """Return lanes, each as often as its weight, spread evenly."""
    places = [
        ((place + 0.5) / weight, lane)
        for lane, weight in enumerate(weights)
        for place in range(weight)
    ]
    return [lane for _, lane in sorted(places)]
