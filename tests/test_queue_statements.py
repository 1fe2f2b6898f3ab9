"""The page of statements about queues names each of them once, and only tests that are there."""

import re
from collections.abc import Iterator
from typing import Final

from tests.test_invariants import DOCS, is_there, witnesses

STATEMENTS: Final = range(1, 93)
"""Of the reference list."""

_ROW = re.compile(r"^\| b(\d+) \|")
_INVARIANT = re.compile(r"^\| I(\d+) \|")


def rows() -> Iterator[tuple[int, str]]:
    """Return the number of each row, and what shows that it holds."""
    yield from _rows(_ROW)


def invariants() -> Iterator[tuple[int, str]]:
    """Return the same of the invariants of the simulated lives."""
    yield from _rows(_INVARIANT)


def _rows(pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    for line in (DOCS / "queue-statements.md").read_text(encoding="utf-8").splitlines():
        found = pattern.match(line)
        if found is not None:
            yield int(found[1]), line.split(" | ", 2)[2]


def test_every_statement_has_one_row() -> None:
    assert [number for number, _ in rows()] == list(STATEMENTS)
    assert [number for number, _ in invariants()] == list(range(1, 13))


def test_everything_that_is_named_is_there() -> None:
    named = [place for _, shown_by in [*rows(), *invariants()] for place in witnesses(shown_by)]

    assert [place for place in named if not is_there(*place)] == []
    assert len(named) > len(STATEMENTS)


def test_a_row_names_something_or_says_why_not() -> None:
    silent = [
        number
        for number, shown_by in [*rows(), *invariants()]
        if not list(witnesses(shown_by)) and len(shown_by) < len("There is none yet.")
    ]

    assert silent == []
