"""Messages that were delivered before and are visible again.

Pure: no clock, no I/O.
"""

from collections.abc import Iterator
from typing import Final, final

from sortedcontainers import SortedList

from tidelog.queue_layer.collections.range_map import RangeMap

_NOTHING: Final[SortedList[tuple[int, int]]] = SortedList()
"""Shared by all objects that never had a message; nothing is ever added to it."""


@final
class RedeliverableMessages:
    """Messages that are visible again, the longest visible first.

    Invariant: `ranges` and `_by_time` hold the same ranges.
    """

    __slots__ = ("_by_time", "ranges")

    def __init__(self) -> None:
        self.ranges: RangeMap[int] = RangeMap()
        """Ranges, with the time since which they are visible; to be read only."""
        self._by_time: SortedList[tuple[int, int]] = _NOTHING
        """Time and first offset of each range."""

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._by_time)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield first offsets and ends."""
        for _, first in self._by_time:
            found = self.ranges.starting_at(first)
            assert found is not None
            yield first, found[0]

    def add(self, first: int, end: int, since_ms: int) -> None:
        """Add messages that are not there."""
        self.ranges.insert(first, end, since_ms)
        if self._by_time is _NOTHING:
            self._by_time = SortedList()
        self._by_time.add((since_ms, first))

    def remove(self, first: int, end: int) -> None:
        """Remove messages of a range, if they are there."""
        if not self.ranges.ranges:
            return
        for piece_first, piece_end, since_ms in list(self.ranges.pieces(first, end)):
            self._by_time.discard((since_ms, piece_first))
            self.ranges.cut(piece_first, piece_end)
            rest = self.ranges.starting_at(piece_end)
            if rest is not None:
                # It may be a separate range that is there already: then this changes nothing.
                self._by_time.discard((rest[1], piece_end))
                self._by_time.add((rest[1], piece_end))
