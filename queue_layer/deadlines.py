"""When ranges of messages become visible by themselves.

Pure: no clock, no I/O.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, final

_SPARE: Final = 1024
"""Obsolete deadlines that are kept at least, before the others are searched for them."""

IsCurrent = Callable[[int, int], bool]
"""Whether a range that begins at an offset (second) still becomes visible at a time (first)."""


@final
class Deadlines:
    """A heap of times, in which what is obsolete stays until it is met or there is too much of it.

    Most leases end by a delete long before their time, and then this costs one `heappush` and
    a part of a `heapify`, with nothing to be searched.
    """

    __slots__ = ("_heap", "_is_current", "_spared")

    def __init__(self, is_current: IsCurrent) -> None:
        """Keep deadlines for somebody who can tell which ones still count."""
        self._heap: list[tuple[int, int]] = []
        self._is_current = is_current
        self._spared = 0
        """How many were current when obsolete ones were removed last."""

    def __len__(self) -> int:
        """Return how many there are, obsolete ones among them."""
        return len(self._heap)

    def add(self, time_ms: int, first: int) -> None:
        """Take note of one; equal ones count once."""
        heappush(self._heap, (time_ms, first))
        if len(self._heap) > 2 * self._spared + _SPARE:
            self._heap = [item for item in set(self._heap) if self._is_current(*item)]
            heapify(self._heap)
            self._spared = len(self._heap)

    def fill(self, deadlines: list[tuple[int, int]]) -> None:
        """Replace all by times and first offsets that count."""
        self._heap = deadlines
        heapify(self._heap)
        self._spared = len(self._heap)

    def next_ms(self) -> int | None:
        """Return the earliest one that counts."""
        while self._heap and not self._is_current(*self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> list[tuple[int, int]]:
        """Remove and return times and offsets up to and including a time, those that count."""
        due: list[tuple[int, int]] = []
        while self._heap and self._heap[0][0] <= now_ms:
            item = heappop(self._heap)
            if (not due or due[-1] != item) and self._is_current(*item):
                due.append(item)
        return due

    def time_of(self, count: int, now_ms: int) -> int:
        """Return a time, up to now, until which so many count that are due; now if fewer do."""
        if len(self._heap) < count:
            return now_ms
        first: list[tuple[int, int]] = []
        while self._heap and self._heap[0][0] <= now_ms and len(first) < count:
            item = heappop(self._heap)
            if (not first or first[-1] != item) and self._is_current(*item):
                first.append(item)
        for item in first:
            heappush(self._heap, item)
        return first[-1][0] if len(first) == count else now_ms

    def clear(self) -> None:
        """Forget all."""
        self._heap.clear()
        self._spared = 0
