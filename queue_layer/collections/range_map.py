"""Map from ranges of offsets, which do not overlap, to values.

Pure: no clock, no I/O. Costs depend on the number of ranges, never on the number of offsets.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, Generic, TypeVar, final

from tidelog.queue_layer.collections.sorted_offsets import SortedOffsets

Value = TypeVar("Value")

_NO_RANGES: Final[dict[int, Any]] = {}
_NO_STARTS: Final = SortedOffsets()
"""Shared by all maps that never had a range, as most stay empty; nothing is ever added to them."""


@final
class RangeMap(Generic[Value]):
    """An ordered map from ranges of offsets to values; ends are exclusive.

    Invariant: no range is empty and no two of them overlap; `_starts` has the keys of `ranges`.
    """

    __slots__ = ("_starts", "ranges")

    def __init__(self) -> None:
        self.ranges: dict[int, tuple[int, Value]] = _NO_RANGES
        """End and value of each range by its first offset, in no order; to be read only."""
        self._starts = _NO_STARTS

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self.ranges)

    def __iter__(self) -> Iterator[tuple[int, int, Value]]:
        """Yield first offset, end and value of each range, ascending."""
        for first in self._starts:
            end, value = self.ranges[first]
            yield first, end, value

    @property
    def first(self) -> int | None:
        """Lowest offset of all ranges."""
        return self._starts.first

    def starting_at(self, first: int) -> tuple[int, Value] | None:
        """Return end and value of the range that starts exactly at `first`."""
        return self.ranges.get(first)

    def pieces(self, first: int, end: int) -> Iterator[tuple[int, int, Value]]:
        """Yield the parts of ranges in `[first, end)`, ascending; no changes meanwhile."""
        ranges = self.ranges
        known = ranges.get(first)
        if known is None:
            start = self._starts.last_at(first)
            known = None if start is None else ranges[start]
        if known is None or known[0] <= first:
            return self._starting_in(first, end)
        if known[0] >= end:  # The most frequent case.
            return iter([(first, end, known[1])] if first < end else [])
        return chain([(first, known[0], known[1])], self._starting_in(first, end))

    def _starting_in(self, first: int, end: int) -> Iterator[tuple[int, int, Value]]:
        """Yield the parts of the ranges that start after `first`."""
        for start in self._starts.between(first, end):
            range_end, value = self.ranges[start]
            yield start, min(range_end, end), value

    def cut(self, first: int, end: int) -> list[tuple[int, int, Value]]:
        """Remove `[first, end)` and return the pieces that were there."""
        if first >= end or not self.ranges:
            return []
        whole = self.ranges.get(first)
        if whole is not None and whole[0] == end:  # The most frequent case.
            del self.ranges[first]
            self._starts.remove(first)
            return [(first, end, whole[1])]
        found = list(self.pieces(first, end))
        for start, stop, value in found:
            range_end = stop
            known = self.ranges.pop(start, None)
            if known is None:
                before = self._starts.last_at(start)
                assert before is not None, "a piece is a part of a range"
                range_end = self.ranges[before][0]
                self.ranges[before] = (start, value)
            else:
                self._starts.remove(start)
                range_end = known[0]
            if range_end > end:
                self.insert(end, range_end, value)
        return found

    def insert(self, first: int, end: int, value: Value) -> None:
        """Add a range where there is none."""
        assert first < end
        if self.ranges is _NO_RANGES:
            self.clear()
        self.ranges[first] = (end, value)
        self._starts.add(first)

    def put(self, first: int, end: int, value: Value) -> int:
        """Add a range where there is none, joined with equal neighbours; return its start."""
        assert first < end
        if self.ranges is _NO_RANGES:
            self.clear()
        ranges = self.ranges
        right = ranges.get(end)
        if right is not None and right[1] == value:
            del ranges[end]
            self._starts.remove(end)
            end = right[0]
        start = self._starts.add(first)
        if start is not None:
            left_end, left_value = ranges[start]
            assert left_end <= first, f"[{first}, {end}) overlaps [{start}, {left_end})"
            if left_end == first and left_value == value:
                self._starts.remove(first)
                ranges[start] = (end, value)
                return start
        ranges[first] = (end, value)
        return first

    def fill(self, ranges: Iterable[tuple[int, int, Value]]) -> None:
        """Replace all ranges, by ascending ones: much faster than one by one."""
        kept: dict[int, tuple[int, Value]] = {}
        at = 0
        for first, end, value in ranges:
            assert at <= first < end, f"[{first}, {end}) begins below {at} or is empty"
            kept[first] = (end, value)
            at = end
        self.ranges, self._starts = kept, SortedOffsets()
        self._starts.fill(list(kept))

    def clear(self) -> None:
        """Remove all ranges."""
        self.fill(())
