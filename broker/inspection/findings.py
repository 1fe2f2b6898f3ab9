"""Findings about a file that was checked.

Pure: no clock, no I/O.
"""

from dataclasses import dataclass
from typing import Final, final

_KEPT_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class FileCheck:
    """One file, and the problems found in it."""

    path: str
    problems: tuple[str, ...] = ()
    """Problems of the file; empty if it is good."""
    note: str = ""
    """The meaning of the file, and its fate at the next start."""

    @property
    def is_ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


@final
class Problems:
    """Problems of one file; only the first of very many are kept."""

    def __init__(self) -> None:
        """Start without problems."""
        self._kept: list[str] = []
        self._count = 0

    def __len__(self) -> int:
        """Return the number of problems."""
        return self._count

    def add(self, problem: str) -> None:
        """Add a problem."""
        self._count += 1
        if len(self._kept) < _KEPT_MAX:
            self._kept.append(problem)

    def all(self) -> tuple[str, ...]:
        """Return the kept problems, and the number of further ones."""
        more = self._count - len(self._kept)
        return (*self._kept, f"and {more} more") if more else tuple(self._kept)
