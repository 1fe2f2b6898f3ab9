"""An index of names in order, for lists of names in pages.

Pure: no clock, no I/O.
"""

from bisect import bisect_left, bisect_right, insort
from typing import Final, final

_LAST: Final = chr(0x10FFFF)
"""A character behind all those of names."""


@final
class NameIndex:
    """Names in order, each once.

    The names of a snapshot come in any order, and are sorted once, by the first page or removal.
    After that, a page costs its own length, and a change a binary search.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._names: list[str] = []
        self._is_sorted = False

    def copy(self) -> "NameIndex":
        """Return an independent index of the same names."""
        index = NameIndex()
        index._names, index._is_sorted = self._names.copy(), self._is_sorted
        return index

    __hash__ = None  # type: ignore[assignment]  # Its names change.

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same names."""
        if not isinstance(other, NameIndex):
            return NotImplemented
        return sorted(self._names) == sorted(other._names)

    def add(self, name: str) -> None:
        """Add a name that the index does not have."""
        if self._is_sorted:
            insort(self._names, name)
        else:
            self._names.append(name)

    def remove(self, name: str) -> None:
        """Remove a name that the index has."""
        self._sort()
        del self._names[bisect_left(self._names, name)]

    def page(self, *, prefix: str, after: str, limit: int) -> tuple[list[str], bool]:
        """Return up to `limit` names with a prefix behind `after`, and whether there are more."""
        self._sort()
        first = max(bisect_left(self._names, prefix), bisect_right(self._names, after))
        end = bisect_left(self._names, prefix + _LAST, lo=first)
        return self._names[first : min(first + limit, end)], first + limit < end

    def _sort(self) -> None:
        if not self._is_sorted:
            self._names.sort()
            self._is_sorted = True
