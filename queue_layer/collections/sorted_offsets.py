"""Sorted set of offsets whose operations are one call each.

Pure: no clock, no I/O.

The offsets are in short lists, so that an insertion moves few of them. Most of them are added at
the end, and removed at the beginning.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, final

_LENGTH_MAX: Final = 1024
"""Length at which a list is split in two."""


@final
class SortedOffsets:
    """Different offsets, ascending.

    Invariant: no list is empty, and `_firsts` has the first offset of each.
    """

    __slots__ = ("_firsts", "_lists")

    def __init__(self) -> None:
        """Start empty."""
        self._lists: list[list[int]] = []
        self._firsts: list[int] = []

    def __iter__(self) -> Iterator[int]:
        """Yield the offsets; no changes meanwhile."""
        for part in self._lists:
            yield from part

    @property
    def first(self) -> int | None:
        """The lowest offset."""
        return self._firsts[0] if self._firsts else None

    def fill(self, offsets: list[int]) -> None:
        """Replace all offsets by ascending ones."""
        half = _LENGTH_MAX // 2
        self._lists = [offsets[at : at + half] for at in range(0, len(offsets), half)]
        self._firsts = offsets[::half]

    def add(self, offset: int) -> int | None:
        """Add an offset that is not there; return the last one below it, `None` without one."""
        lists, firsts = self._lists, self._firsts
        if not lists:
            lists.append([offset])
            firsts.append(offset)
            return None
        place = len(lists) - 1
        part = lists[place]
        before: int | None = part[-1]
        if offset > part[-1]:
            part.append(offset)
        else:
            place = max(bisect_right(firsts, offset) - 1, 0)
            part = lists[place]
            at = bisect_left(part, offset)
            before = part[at - 1] if at else None
            part.insert(at, offset)
            firsts[place] = part[0]
        if len(part) > _LENGTH_MAX:
            half = len(part) // 2
            lists.insert(place + 1, part[half:])
            firsts.insert(place + 1, part[half])
            del part[half:]
        return before

    def remove(self, offset: int) -> None:
        """Remove an offset that is there."""
        place = bisect_right(self._firsts, offset) - 1
        part = self._lists[place]
        if len(part) == 1:
            del self._lists[place], self._firsts[place]
            return
        del part[bisect_left(part, offset)]
        self._firsts[place] = part[0]

    def last_at(self, offset: int) -> int | None:
        """Return the last one at or below an offset, `None` without one."""
        place = bisect_right(self._firsts, offset) - 1
        if place < 0:
            return None
        part = self._lists[place]
        return part[bisect_right(part, offset) - 1]

    def between(self, first: int, end: int) -> Iterator[int]:
        """Yield those after `first` and before `end`; no changes meanwhile."""
        for place in range(max(bisect_right(self._firsts, first) - 1, 0), len(self._lists)):
            if self._firsts[place] >= end:
                break
            part = self._lists[place]
            yield from part[bisect_right(part, first) : bisect_left(part, end)]
