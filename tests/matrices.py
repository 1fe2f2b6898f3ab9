"""Generator of the test matrices in `docs/`, by invariant and statement: `make matrices`.

A test carries a mark, `@pytest.mark.invariant("I39")` or `@pytest.mark.statement("b50")`. A checker
of the simulator and a step of a state machine carry the same marks; a mutation has
`shows=("I38",)`. The pages have a row for each id: the id, the statement, a note, and the tests.
Only the last column is generated.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from tests.paths import ROOT


def _ids(letter: str, first: int, last: int) -> list[str]:
    return [f"{letter}{number}" for number in range(first, last + 1)]


TESTS: Final = ROOT / "tests"
PAGES: Final = {
    "invariants.md": _ids("I", 1, 65),
    "raft.md": _ids("I", 66, 75),
    "groups.md": _ids("I", 76, 77),
    "queue-statements.md": _ids("b", 1, 102) + _ids("q", 1, 12),
    "spark-statements.md": _ids("s", 1, 42),
}
"""The pages, and the ids of the rows of each."""

_MARKS: Final = {"invariant", "statement"}
_ROW: Final = re.compile(r"\| ([Ibqs]\d+) \|")
_CELLS: Final = 4

Witness = tuple[str, str]
"""The file below `tests/`, and the name of a test, a checker or a mutation in it."""


@final
@dataclass(slots=True)
class Page:
    """One page, with its rows from the marks of the tests."""

    text: str
    generated: str
    bare: list[str] = field(default_factory=list[str])
    """The ids that have neither a test nor a note."""
    ids: list[str] = field(default_factory=list[str])
    """Ids in the order of the rows."""


def witnesses_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the id and the name of each witness in the text of a module."""
    if not any(word in text for word in (*(f"mark.{mark}" for mark in _MARKS), "shows=")):
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                for decorator in node.decorator_list:
                    yield from ((each, node.name) for each in _marked(decorator))
            case ast.Call(args=[ast.Constant(value=str(name)), *_]):
                for keyword in node.keywords:
                    if keyword.arg == "shows":
                        ids: tuple[str, ...] = ast.literal_eval(keyword.value)
                        yield from ((each, name) for each in ids)
            case _:
                pass


def _marked(decorator: ast.expr) -> Iterator[str]:
    match decorator:
        case ast.Call(func=ast.Attribute(attr=name, value=ast.Attribute(attr="mark")), args=ids):
            if name in _MARKS:
                yield from (ast.literal_eval(each) for each in ids)
        case _:
            pass


def all_witnesses() -> dict[str, list[Witness]]:
    """Return the witnesses of each id, in order of the files."""
    found: dict[str, list[Witness]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        if path == Path(__file__) or path.name == "test_matrices.py":
            continue
        for each, name in witnesses_in(path.read_text(encoding="utf-8")):
            found.setdefault(each, []).append((path.relative_to(TESTS).as_posix(), name))
    return found


def page_of(text: str, witnesses: dict[str, list[Witness]]) -> Page:
    """Return a page with its last column generated."""
    page = Page(text, "")
    lines: list[str] = []
    for line in text.splitlines():
        found = _ROW.match(line)
        if found is None:
            lines.append(line)
            continue
        cells = [cell.strip() for cell in line.removesuffix("|").split("|")[1:]]
        assert len(cells) == _CELLS, f"a row has {_CELLS} cells: {line}"
        shown_by = _shown_by(witnesses.get(found[1], []))
        if not shown_by and not cells[2]:
            page.bare.append(found[1])
        page.ids.append(found[1])
        lines.append(" ".join(f"| {cell}".rstrip() for cell in [*cells[:3], shown_by]) + " |")
    page.generated = "\n".join(lines) + "\n"
    return page


def _shown_by(witnesses: list[Witness]) -> str:
    by_path: dict[str, list[str]] = {}
    for path, name in witnesses:
        by_path.setdefault(path, []).append(f"`{name}`")
    return "; ".join(f"`{path}`: {', '.join(names)}" for path, names in by_path.items())


def main() -> int:
    """Write the pages; return the exit code."""
    witnesses = all_witnesses()
    for name in PAGES:
        path = ROOT / "docs" / name
        path.write_text(
            page_of(path.read_text(encoding="utf-8"), witnesses).generated, encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
