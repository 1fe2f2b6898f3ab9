"""When ranges of messages become visible by themselves.

Pure: no clock, no I/O.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, final

_SPARE: Final = 1024
"""Obsolete deadlines that are kept at least, before the others are searched for them."""

CROWD: Final = 2_000
"""Ranges that become visible in the same millisecond, before others are given the next one."""
_COUNTED_MAX: Final = 4_096
"""Times of which it is known how many become visible then; those of few are forgotten."""

IsCurrent = Callable[[int, int], bool]
"""Whether a range that begins at an offset (second) still becomes visible at a time (first)."""


@final
class VisibilityTimers:
    """A heap of times, in which what is obsolete stays until it is met or there is too much of it.

    Most leases end by a delete long before their time, and then this costs one `heappush` and
    a part of a `heapify`, with nothing to be searched.
    """

    __slots__ = ("_counts", "_heap", "_is_current", "_later", "_spared")

    def __init__(self, is_current: IsCurrent) -> None:
        """Keep deadlines for somebody who can tell which ones still count."""
        self._heap: list[tuple[int, int]] = []
        self._is_current = is_current
        self._spared = 0
        """How many were current when obsolete ones were removed last."""
        self._counts: dict[int, int] = {}
        """How many were added for times that are to come, obsolete ones among them."""
        self._later: dict[int, int] = {}
        """Of times that are crowded, a later one before which all are."""

    def __len__(self) -> int:
        """Return how many there are, obsolete ones among them."""
        return len(self._heap)

    def add(self, time_ms: int, first: int) -> None:
        """Take note of one; equal ones count once."""
        heappush(self._heap, (time_ms, first))
        self._counts[time_ms] = self._counts.get(time_ms, 0) + 1
        if len(self._counts) > _COUNTED_MAX:
            self._counts = {at: count for at, count in self._counts.items() if count >= CROWD}
        if len(self._heap) > 2 * self._spared + _SPARE:
            self._heap = [item for item in set(self._heap) if self._is_current(*item)]
            heapify(self._heap)
            self._spared = len(self._heap)

    def free_time(self, time_ms: int) -> int:
        """Return the first time from this one on that is not crowded, as far as is known.

        For leases whose time can be chosen: very many would end in the same millisecond where the
        clock stands still, as it seems to after it was put back, and all of them in one go.
        """
        at = time_ms
        while self._counts.get(at, 0) >= CROWD:
            at = self._later.get(at, at + 1)
        if at != time_ms:
            self._later[time_ms] = at
        return at

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
            if self._counts.pop(item[0], None) is not None:
                self._later.pop(item[0], None)
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
        self._counts.clear()
        self._later.clear()
        self._spared = 0
