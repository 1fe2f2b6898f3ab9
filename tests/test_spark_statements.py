"""The page of statements about Spark has all of them, and names tests that are there."""

import re
from collections.abc import Iterator
from typing import Final

from tests.test_invariants import DOCS, is_there, witnesses

COUNT: Final = 42
_ROW = re.compile(r"^\| s(\d+) \|")


def rows() -> Iterator[tuple[int, str]]:
    """Return the number of each row, and what shows that it holds."""
    for line in (DOCS / "spark-statements.md").read_text(encoding="utf-8").splitlines():
        found = _ROW.match(line)
        if found is not None:
            yield int(found[1]), line.split(" | ", 2)[2]


def test_every_statement_has_one_row() -> None:
    assert [number for number, _ in rows()] == list(range(1, COUNT + 1))


def test_everything_that_is_named_is_there() -> None:
    named = [place for _, shown_by in rows() for place in witnesses(shown_by)]

    assert [place for place in named if not is_there(*place)] == []
