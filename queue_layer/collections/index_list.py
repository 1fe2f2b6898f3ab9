"""Ring of numbers that take turns, in 8 bytes each.

Pure: no clock, no I/O.

A doubly linked list in two columns. A `deque` cannot remove a number from its middle, and an
ordered `dict` slows down after many removals from its front.
"""

from array import array
from collections.abc import Iterator
from typing import final

_ABSENT = -1
_ENDS = 0
"""Sentinel before the first and after the last number; not available as a number."""


@final
class IndexList:
    """Small numbers from 1 on, each there at most once, in the order in which they were added."""

    __slots__ = ("_after", "_before")

    def __init__(self) -> None:
        """Start empty."""
        self._before = array("i", [_ENDS])
        self._after = array("i", [_ENDS])

    def __contains__(self, number: int) -> bool:
        """Return whether a number is there."""
        return number < len(self._after) and self._after[number] != _ABSENT

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers, in the order in which they were added.

        Changes during the iteration may change the numbers that follow. It ends when the last
        yielded number is removed.
        """
        number = self._after[_ENDS]
        while number not in (_ENDS, _ABSENT):
            yield number
            number = self._after[number]

    def add(self, number: int) -> None:
        """Append a number that is not there."""
        before, after = self._before, self._after
        if number >= len(after):
            missing = [_ABSENT] * (number + 1 - len(after))
            before.extend(missing)
            after.extend(missing)
        assert after[number] == _ABSENT, "it is there already"
        last = before[_ENDS]
        after[last] = before[_ENDS] = number
        before[number], after[number] = last, _ENDS

    def discard(self, number: int) -> None:
        """Remove a number if it is there."""
        if number not in self:
            return
        before, after = self._before, self._after
        after[before[number]] = after[number]
        before[after[number]] = before[number]
        after[number] = _ABSENT
