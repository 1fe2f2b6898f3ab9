"""The page of statements about queues names each of them once, and only tests that are there."""

import re
from collections.abc import Iterator
from typing import Final

from tests.test_invariants import DOCS, is_there, witnesses

STATEMENTS: Final = range(20, 50)
"""Of the reference list; those of standard queues are still to be entered."""

_ROW = re.compile(r"^\| b(\d+) \|")


def rows() -> Iterator[tuple[int, str]]:
    """Return the number of each row, and what shows that it holds."""
    for line in (DOCS / "queue-statements.md").read_text(encoding="utf-8").splitlines():
        found = _ROW.match(line)
        if found is not None:
            yield int(found[1]), line.split(" | ", 2)[2]


def test_every_statement_has_one_row() -> None:
    assert [number for number, _ in rows()] == list(STATEMENTS)


def test_everything_that_is_named_is_there() -> None:
    named = [place for _, shown_by in rows() for place in witnesses(shown_by)]

    assert [place for place in named if not is_there(*place)] == []
    assert len(named) > len(STATEMENTS)


def test_a_row_names_something_or_says_why_not() -> None:
    silent = [
        number
        for number, shown_by in rows()
        if not list(witnesses(shown_by)) and len(shown_by) < len("There is none yet.")
    ]

    assert silent == []
