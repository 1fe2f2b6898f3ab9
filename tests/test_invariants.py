"""The page of invariants names every statement once, and only tests and checkers that are there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
DOCS: Final = TESTS.parent / "docs"
LAST: Final = 65
"""The statements behind it are in `raft.md` and `groups.md`."""

_ROW = re.compile(r"^\| I(\d+)(?: to I(\d+))? \|")
_QUOTED = re.compile(r"`([^`]+)`")


def rows() -> Iterator[tuple[range, str]]:
    """Return the numbers of each row, and what shows that it holds."""
    for line in (DOCS / "invariants.md").read_text(encoding="utf-8").splitlines():
        found = _ROW.match(line)
        if found is not None:
            first = int(found[1])
            yield range(first, int(found[2] or first) + 1), line.split(" | ", 2)[2]


def witnesses(shown_by: str) -> Iterator[tuple[str, str]]:
    """Return the file and the name of everything that a row names."""
    path = ""
    for word in _QUOTED.findall(shown_by):
        if word.endswith(".py"):
            path = word
        else:
            yield path, word


def is_there(path: str, name: str) -> bool:
    """Return whether a file has a test, a class, a function or a planted bug of this name."""
    text = (TESTS / path).read_text(encoding="utf-8")
    defined = re.search(rf"^ *(?:async )?(?:def|class) {re.escape(name)}\b", text, re.MULTILINE)
    return defined is not None or f'"{name}"' in text


def test_every_statement_has_one_row() -> None:
    numbers = [number for covered, _ in rows() for number in covered]

    assert numbers == list(range(1, LAST + 1))


def test_everything_that_is_named_is_there() -> None:
    named = [(path, name) for _, shown_by in rows() for path, name in witnesses(shown_by)]

    missing = [place for place in named if not is_there(*place)]

    assert missing == []
    assert len(named) > LAST


def test_a_row_names_something_or_says_why_not() -> None:
    silent = [
        covered
        for covered, shown_by in rows()
        if not list(witnesses(shown_by)) and len(shown_by) < len("There is none yet.")
    ]

    assert silent == []


def test_what_is_not_there_is_found_missing() -> None:
    """The check itself: a test that was renamed does not count as shown."""
    name = "test_a_record_is_committed_when_everybody_in_sync_has_it"
    assert is_there("isr/test_followers.py", name)
    assert not is_there("isr/test_followers.py", name[:-1])
    assert not is_there("isr/test_leader.py", name)
