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
    chosen_tests: tuple[str, ...] = ()
    """Paths of the unit tests below `tests/`; by default all of the folders."""

    @property
    def modules(self) -> list[str]:
        """Paths of the pure cores, from the root of the repository."""
        files = sorted(path for folder in self.folders for path in (ROOT / folder).rglob("*.py"))
        return [str(path.relative_to(ROOT)) for path in files if is_pure_core(path)]

    @property
    def tests(self) -> list[str]:
        """Paths of the unit tests, from the root of the repository."""
        return [f"tests/{path}" for path in self.chosen_tests or self.folders]

    def files(self) -> Iterator[Path]:
        """Return the files of code and tests."""
        for folder in (*self.folders, *(f"tests/{folder}" for folder in self.folders)):
            yield from (ROOT / folder).rglob("*.py")


def is_pure_core(path: Path) -> bool:
    """Return whether the docstring of a module says that it has no clock."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    text = " ".join(docstring.split())
    return "no clock" in text and "Pure: declarations" not in text


_SUBJECTS_OF_LOGSTORE: Final = (
    *("damage", "leader_epochs", "log", "log_retention", "producer_state", "replicated_log"),
    "search_by_time",
)
"""All but the tests that end a log at each of its writes, which take minutes for each mutant."""

ROOMS: Final = {
    room.name: room
    for room in (
        Room("isr", ("isr",), ("isr", "cluster")),
        Room(
            "logstore",
            ("logstore",),
            ("broker", "compacted"),
            (
                "logstore/compaction",
                "logstore/retention",
                "logstore/segments",
                *(f"logstore/test_{subject}.py" for subject in _SUBJECTS_OF_LOGSTORE),
            ),
        ),
        Room("groups", ("coordinator/groups",), ("groups",)),
        Room(
            "metadata",
            ("coordinator/metadata", "coordinator/bootstrap", "coordinator/controller"),
            ("metadata",),
            (  # The simulated machines of other tests refuse the system calls of coverage.
                "coordinator/metadata",
                "coordinator/bootstrap/test_decision.py",
                "coordinator/controller/test_address_book.py",
                "coordinator/controller/test_log_entries.py",
                "coordinator/controller/test_voter_promotion.py",
            ),
        ),
        Room("raft", ("coordinator/raft",), ("raft",)),
        Room("queue_layer", ("queue_layer",), ("queues",)),
        Room("wire", ("wire",), ("broker",)),
    )
}
