"""Measured figures with their spread, and the table of results.

Pure: no clock, no I/O.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Self


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of repeated measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Summarise at least one measurement."""
        measured = sorted(values)
        return cls(median(measured), measured[0], measured[-1])

    def text(self, form: str = ",.0f") -> str:
        """Return `median (low to high)`, every number in the given format."""
        return f"{self.median:{form}} ({self.low:{form}} to {self.high:{form}})"


def ratios(ours: Sequence[float], ceiling: Sequence[float]) -> Spread:
    """Return the ratios of ours to the ceiling, each pair measured in direct succession."""
    return Spread.of(mine / best for mine, best in zip(ours, ceiling, strict=True))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the results."""

    what: str
    measured: str
    goal: str = ""
    """Goal of the figure; empty for a figure that only explains another one."""
    is_met: bool | None = None
    """Whether the goal is met; `None` without a goal."""

    @property
    def verdict(self) -> str:
        """One word."""
        return "" if self.is_met is None else "met" if self.is_met else "MISSED"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run."""

    directory: Path
    """An empty directory on the disk to be measured."""
    is_quick: bool
    """Whether the run is short and its figures rough."""

    def choose(self, full: int, quick: int) -> int:
        """Return a number of repetitions, bytes or seconds."""
        return quick if self.is_quick else full


Workload = Callable[[Settings], list[Row]]


def table(rows: Sequence[Row]) -> str:
    """Return rows as a table of Markdown that can also be read as it is."""
    cells = [("what", "measured", "goal", "")]
    cells += [(row.what, row.measured, row.goal, row.verdict) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    lines = [_line(line, widths) for line in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _line(line: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
    return f"| {' | '.join(padded)} |"
