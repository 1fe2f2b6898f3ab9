"""What is said of a file that was looked at.

Pure: no clock, no I/O.
"""

from dataclasses import dataclass
from typing import Final, final

_KEPT_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class FileCheck:
    """One file, and whether it is as it should be."""

    path: str
    problems: tuple[str, ...] = ()
    """What is wrong; nothing if it is good."""
    note: str = ""
    """What it is, and what becomes of it at the next start."""

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@final
class Problems:
    """What is found to be wrong with one file; only the first of very many are kept."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._kept: list[str] = []
        self._count = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return self._count

    def add(self, problem: str) -> None:
        """Take note of one."""
        self._count += 1
        if len(self._kept) < _KEPT_MAX:
            self._kept.append(problem)

    def all(self) -> tuple[str, ...]:
        """Return them, and how many more there are."""
        more = self._count - len(self._kept)
        return (*self._kept, f"and {more} more") if more else tuple(self._kept)
