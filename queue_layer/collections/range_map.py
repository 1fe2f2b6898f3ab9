"""Map from ranges of offsets, which do not overlap, to values.

Pure: no clock, no I/O. Costs depend on the number of ranges, never on the number of offsets.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar, final

from sortedcontainers import SortedDict

Value = TypeVar("Value")

_NOTHING: Final[SortedDict[int, Any]] = SortedDict()
"""Shared by all empty maps, because an own one takes 1,500 bytes; nothing is ever added to it."""


@final
class RangeMap(Generic[Value]):
    """An ordered map from ranges of offsets to values; ends are exclusive.

    Invariant: no range is empty and no two of them overlap.
    """

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: SortedDict[int, tuple[int, Value]] = _NOTHING

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._ranges)

    def __iter__(self) -> Iterator[tuple[int, int, Value]]:
        """Yield first offset, end and value of each range, ascending."""
        for first, (end, value) in self._ranges.items():
            yield first, end, value

    @property
    def first(self) -> int | None:
        """Lowest offset of all ranges."""
        return self._ranges.peekitem(0)[0] if self._ranges else None

    def starting_at(self, first: int) -> tuple[int, Value] | None:
        """Return end and value of the range that starts exactly at `first`."""
        return self._ranges.get(first)

    def pieces(self, first: int, end: int) -> Iterator[tuple[int, int, Value]]:
        """Yield the parts of ranges in `[first, end)`, ascending; no changes meanwhile."""
        if first >= end:
            return
        index = self._ranges.bisect_right(first) - 1
        if index >= 0:
            _, (range_end, value) = self._ranges.peekitem(index)
            if range_end > first:
                yield first, min(range_end, end), value
        for start in self._ranges.irange(first, end, inclusive=(False, False)):
            range_end, value = self._ranges[start]
            yield start, min(range_end, end), value

    def cut(self, first: int, end: int) -> list[tuple[int, int, Value]]:
        """Remove `[first, end)` and return the pieces that were there."""
        if first >= end or not self._ranges:
            return []
        whole = self._ranges.get(first)
        if whole is not None and whole[0] == end:
            del self._ranges[first]
            return [(first, end, whole[1])]
        index = self._ranges.bisect_right(first) - 1
        if index >= 0:
            start, (range_end, value) = self._ranges.peekitem(index)
            if range_end <= first and index + 1 == len(self._ranges):
                return []
            if end <= range_end:  # The most frequent case.
                self._cut_inside(start, range_end, (first, end))
                return [(first, end, value)]
        found = list(self.pieces(first, end))
        if not found:
            return []
        last_start, last_value = found[-1][0], found[-1][2]
        for start, _, value in found:
            range_end = self._remove_from(start, value)
            if start == last_start and range_end > end:
                self._ranges[end] = (range_end, last_value)
        return found

    def _cut_inside(self, start: int, range_end: int, piece: tuple[int, int]) -> None:
        """Remove a piece of the range from `start` to `range_end`, which contains it."""
        first, end = piece
        value = self._ranges[start][1]
        if start < first:
            self._ranges[start] = (first, value)
        else:
            del self._ranges[start]
        if end < range_end:
            self._ranges[end] = (range_end, value)

    def _remove_from(self, start: int, value: Value) -> int:
        """Remove the range that holds `start`, from there on; return its old end."""
        whole = self._ranges.get(start)
        if whole is not None:
            del self._ranges[start]
            return whole[0]
        key, (range_end, _) = self._ranges.peekitem(self._ranges.bisect_right(start) - 1)
        self._ranges[key] = (start, value)
        return range_end

    def insert(self, first: int, end: int, value: Value) -> None:
        """Add a range where there is none."""
        assert first < end
        if self._ranges is _NOTHING:
            self._ranges = SortedDict()
        self._ranges[first] = (end, value)

    def put(self, first: int, end: int, value: Value) -> int:
        """Add a range where there is none, joined with equal neighbours; return its start."""
        assert first < end
        if self._ranges is _NOTHING:
            self._ranges = SortedDict()
        right = self._ranges.get(end)
        if right is not None and right[1] == value:
            del self._ranges[end]
            end = right[0]
        index = self._ranges.bisect_left(first) - 1
        if index >= 0:
            left_first, (left_end, left_value) = self._ranges.peekitem(index)
            assert left_end <= first, f"[{first}, {end}) overlaps [{left_first}, {left_end})"
            if left_end == first and left_value == value:
                first = left_first
        self._ranges[first] = (end, value)
        return first

    def fill(self, ranges: Iterable[tuple[int, int, Value]]) -> None:
        """Replace all ranges, by ascending ones: much faster than one by one."""
        kept: dict[int, tuple[int, Value]] = {}
        at = 0
        for first, end, value in ranges:
            assert at <= first < end, f"[{first}, {end}) begins below {at} or is empty"
            kept[first] = (end, value)
            at = end
        self._ranges = _NOTHING
        if kept:
            self._ranges = SortedDict()
            self._ranges.update(kept)

    def clear(self) -> None:
        """Remove all ranges."""
        self._ranges = _NOTHING
