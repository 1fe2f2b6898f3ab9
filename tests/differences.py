"""Generator of `docs/sqs-differences.md`, the differences from Amazon SQS: `make matrices`.

A test that shows a difference carries it in a mark:

    @pytest.mark.difference("Queues", cloud="...", here="...", why="...", switch="...")

`cloud` is what the vendor documents, `here` what the front does, `why` the decision, and `switch`
the option that makes the front do as the cloud. All of them are Markdown for a cell of a table.
The sections of the page are those of `SECTIONS`. Within a section the rows have the order of the
files of the tests, and of the marks in a file.
"""

import ast
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple, final

from tests.paths import ROOT

TESTS: Final = ROOT / "tests"
PAGE: Final = ROOT / "docs" / "sqs-differences.md"
SECTIONS: Final = ("Queues", "Messages", "Dead letters", "Move tasks", "Requests")

_INTRODUCTION: Final = """\
# Differences from Amazon SQS

This page explains to users of Amazon SQS where the [SQS front](sqs.md) differs, why, and which
option makes it do the same. `make matrices` writes it from the marks of tests: each row names a
test that shows what tidelog does. Paths begin at `tests/`. A difference that is not here is a
defect. The rules are in [decision 0063](decisions/0063-move-tasks-and-differences.md).
"""


@final
class Difference(NamedTuple):
    """One difference, and the test that shows it."""

    section: str
    cloud: str
    here: str
    why: str
    switch: str
    """Empty if there is none."""
    shown_by: str
    """File below `tests/` and name of the test, in Markdown."""


def differences_in(text: str, path: str) -> Iterator[Difference]:
    """Yield the differences that the marks of a module state.

    Raises:
        ValueError: A mark lacks a part, or has another one.
    """
    if "mark.difference" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in node.decorator_list:
            match decorator:
                case ast.Call(func=ast.Attribute(attr="difference"), args=[section]):
                    parts = {
                        each.arg or "": ast.literal_eval(each.value) for each in decorator.keywords
                    }
                    if not {"cloud", "here", "why"} <= parts.keys() <= set(Difference._fields):
                        raise ValueError(f"{path}: the mark of {node.name} has {sorted(parts)}")
                    yield Difference(
                        ast.literal_eval(section),
                        parts["cloud"],
                        parts["here"],
                        parts["why"],
                        parts.get("switch", ""),
                        f"`{path}`: `{node.name}`",
                    )
                case _:
                    pass


def all_differences() -> list[Difference]:
    """Return the differences of all tests, in the order of their files."""
    return [
        difference
        for path in sorted(TESTS.rglob("test_*.py"))
        if path.name != "test_differences_page.py"
        for difference in differences_in(
            path.read_text(encoding="utf-8"), path.relative_to(TESTS).as_posix()
        )
    ]


def page_of(differences: list[Difference]) -> str:
    """Return the page."""
    lines = [_INTRODUCTION]
    for section in SECTIONS:
        lines += [
            f"## {section}\n",
            "| Amazon SQS | tidelog | why | switch | shown by |",
            "|---|---|---|---|---|",
            *(
                "| " + " | ".join([*each[1:4], each.switch or "none", each.shown_by]) + " |"
                for each in differences
                if each.section == section
            ),
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the page; return the exit code."""
    PAGE.write_text(page_of(all_differences()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
