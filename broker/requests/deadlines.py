"""Deadlines of many waiting requests, at almost no cost each.

Pure: no clock, no I/O. Deadlines are rounded up to ticks; adding and discarding cost a
dictionary entry, and one task serves all of them.
"""

import heapq
from collections.abc import KeysView
from math import ceil
from typing import Generic, TypeVar, final

_TICKS_PER_SECOND = 50

Item = TypeVar("Item")


@final
class Deadlines(Generic[Item]):
    """Waiting items by the tick at which they expire.

    Invariant: every tick in `_by_tick` is in `_heap` exactly once.
    """

    def __init__(self) -> None:
        """Start without items."""
        self._by_tick: dict[int, dict[Item, None]] = {}
        self._tick_of: dict[Item, int] = {}
        self._heap: list[int] = []

    def __len__(self) -> int:
        """Return the number of waiting items."""
        return len(self._tick_of)

    @property
    def next_deadline(self) -> float | None:
        """Seconds at which `take_expired` should be called next, `None` when no item waits."""
        while self._heap and not self._by_tick[self._heap[0]]:
            del self._by_tick[heapq.heappop(self._heap)]
        return self._heap[0] / _TICKS_PER_SECOND if self._heap else None

    def add(self, item: Item, deadline: float) -> bool:
        """Add a deadline in seconds; return whether it is earlier than all others."""
        tick = ceil(deadline * _TICKS_PER_SECOND)
        is_earliest = not self._heap or tick < self._heap[0]
        if tick not in self._by_tick:
            self._by_tick[tick] = {}
            heapq.heappush(self._heap, tick)
        self._by_tick[tick][item] = None
        self._tick_of[item] = tick
        return is_earliest

    def discard(self, item: Item) -> None:
        """Remove an item that no longer waits; an unknown item is ignored."""
        tick = self._tick_of.pop(item, None)
        if tick is not None:
            del self._by_tick[tick][item]

    def items(self) -> KeysView[Item]:
        """Return the waiting items."""
        return self._tick_of.keys()

    def deadline_of(self, item: Item) -> float | None:
        """Return the deadline of an item in seconds, `None` if it does not wait."""
        tick = self._tick_of.get(item)
        return None if tick is None else tick / _TICKS_PER_SECOND

    def take_expired(self, now: float) -> list[Item]:
        """Remove and return the items that have reached their deadline, earliest first."""
        expired: list[Item] = []
        # The same division as in `next_deadline`: multiplication may round the other way, and then
        # no item would have expired at the time that `next_deadline` returned.
        while self._heap and self._heap[0] / _TICKS_PER_SECOND <= now:
            for item in self._by_tick.pop(heapq.heappop(self._heap)):
                del self._tick_of[item]
                expired.append(item)
        return expired
