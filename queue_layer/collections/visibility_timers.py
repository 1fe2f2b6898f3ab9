"""Timers of ranges of messages that become visible at a time.

Pure: no clock, no I/O.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, final

_SPARE: Final = 1024
"""Minimum number of obsolete timers before they are searched for and removed."""

CROWD: Final = 2_000
"""Maximum ranges that become visible in one millisecond, before others get a later one."""
_COUNTED_MAX: Final = 4_096
"""Maximum times with a known number of timers; times with few timers are dropped then."""

IsCurrent = Callable[[int, int], bool]
"""Whether a range at an offset (second) still becomes visible at a time (first)."""


@final
class VisibilityTimers:
    """A heap of times, in which obsolete timers stay until they are met or there are too many.

    Most leases end by a delete long before their time, and then this costs one `heappush` and
    a part of a `heapify`, without any search.
    """

    __slots__ = ("_counts", "_is_current", "_later", "_spared", "heap")

    def __init__(self, is_current: IsCurrent) -> None:
        """Start without timers; `is_current` tells which of them still count."""
        self.heap: list[tuple[int, int]] = []
        """Times and first offsets, a heap; to be read only. The first may be obsolete."""
        self._is_current = is_current
        self._spared = 0
        """Number of current timers when obsolete ones were removed last."""
        self._counts: dict[int, int] = {}
        """Number of timers added for each future time, obsolete ones included."""
        self._later: dict[int, int] = {}
        """For crowded times, a later time before which all are crowded."""

    def __len__(self) -> int:
        """Return the number of timers, obsolete ones included."""
        return len(self.heap)

    def add(self, time_ms: int, first: int) -> None:
        """Add a timer; equal timers count once."""
        heappush(self.heap, (time_ms, first))
        self._counts[time_ms] = self._counts.get(time_ms, 0) + 1
        if len(self._counts) > _COUNTED_MAX:
            self._counts = {at: count for at, count in self._counts.items() if count >= CROWD}
        if len(self.heap) > 2 * self._spared + _SPARE:
            self.heap = [item for item in set(self.heap) if self._is_current(*item)]
            heapify(self.heap)
            self._spared = len(self.heap)

    def free_time(self, time_ms: int) -> int:
        """Return the first time from this one on that is not crowded, as far as is known.

        For leases whose end can be chosen. After the clock was put back, the queue's time stands
        still: without this, very many leases would end in the same millisecond, all at once.
        """
        at = time_ms
        while self._counts.get(at, 0) >= CROWD:
            at = self._later.get(at, at + 1)
        if at != time_ms:
            self._later[time_ms] = at
        return at

    def fill(self, deadlines: list[tuple[int, int]]) -> None:
        """Replace all timers by current ones, as times and first offsets."""
        self.heap = deadlines
        heapify(self.heap)
        self._spared = len(self.heap)

    def next_ms(self) -> int | None:
        """Return the earliest current time."""
        while self.heap and not self._is_current(*self.heap[0]):
            heappop(self.heap)
        return self.heap[0][0] if self.heap else None

    def pop_due(self, now_ms: int) -> list[tuple[int, int]]:
        """Remove and return the current timers up to and including a time."""
        due: list[tuple[int, int]] = []
        while self.heap and self.heap[0][0] <= now_ms:
            item = heappop(self.heap)
            if self._counts.pop(item[0], None) is not None:
                self._later.pop(item[0], None)
            if (not due or due[-1] != item) and self._is_current(*item):
                due.append(item)
        return due

    def time_of(self, count: int, now_ms: int) -> int:
        """Return the earliest time by which `count` current timers are due, `now_ms` at most."""
        if len(self.heap) < count:
            return now_ms
        first: list[tuple[int, int]] = []
        while self.heap and self.heap[0][0] <= now_ms and len(first) < count:
            item = heappop(self.heap)
            if (not first or first[-1] != item) and self._is_current(*item):
                first.append(item)
        for item in first:
            heappush(self.heap, item)
        return first[-1][0] if len(first) == count else now_ms

    def clear(self) -> None:
        """Remove all timers."""
        self.heap.clear()
        self._counts.clear()
        self._later.clear()
        self._spared = 0
