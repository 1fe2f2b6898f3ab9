"""Rooms whose pure cores are mutated, with their tests and simulations."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from tests.paths import ROOT


@final
@dataclass(frozen=True, slots=True)
class Room:
    """Pure cores that are mutated together."""

    name: str
    folders: tuple[str, ...]
    """Paths from the root of the repository, also below `tests/`."""
    kinds: tuple[str, ...]
    """Kinds of simulated runs for mutations that the unit tests miss."""

    @property
    def modules(self) -> list[str]:
        """Paths of the pure cores, from the root of the repository."""
        files = sorted(path for folder in self.folders for path in (ROOT / folder).rglob("*.py"))
        return [str(path.relative_to(ROOT)) for path in files if is_pure_core(path)]

    @property
    def test_folders(self) -> list[str]:
        """Folders of the unit tests."""
        return [f"tests/{folder}" for folder in self.folders]

    def files(self) -> Iterator[Path]:
        """Return the files of code and tests."""
        for folder in (*self.folders, *self.test_folders):
            yield from (ROOT / folder).rglob("*.py")


def is_pure_core(path: Path) -> bool:
    """Return whether the docstring of a module says that it has no clock."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    text = " ".join(docstring.split())
    return "no clock" in text and "Pure: declarations" not in text


ROOMS: Final = {
    room.name: room
    for room in (
        Room("isr", ("isr",), ("isr", "cluster")),
        Room("logstore", ("logstore",), ("broker", "compacted")),
        Room("groups", ("coordinator/groups",), ("groups",)),
        Room(
            "metadata",
            ("coordinator/metadata", "coordinator/bootstrap", "coordinator/controller"),
            ("metadata",),
        ),
        Room("raft", ("coordinator/raft",), ("raft",)),
        Room("queue_layer", ("queue_layer",), ("queues",)),
        Room("wire", ("wire",), ("broker",)),
    )
}
