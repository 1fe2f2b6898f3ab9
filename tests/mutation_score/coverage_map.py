"""Map from lines of the pure cores to the unit tests that execute them, recorded once."""

import ast
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import msgspec
import pytest
from coverage import Coverage

from tests.mutation_score.pytest_plugins import PYTEST_OPTIONS, LineRecorder
from tests.mutation_score.rooms import ROOMS, Room
from tests.paths import ROOT

BUILD: Final = ROOT / "build" / "mutation_score"
"""Folder of maps and logs; nothing in it is needed later."""


class CoverageMap(msgspec.Struct):
    """Tests of the lines of a room."""

    seconds: dict[str, float]
    """CPU time of each test, by node id."""
    lines: dict[str, dict[int, list[str]]]
    """Tests by path from the root and line; those of imports are in no list."""

    def tests_of(self, file: str, line: int) -> list[list[str]]:
        """Return the tests of a line in groups: of modules with its name first, then all others.

        They are those of the whole statement: a mutation of one operand may give the next operand,
        in another line, to tests that skip it otherwise.
        An import executes the line of a constant or declaration, and a test may depend on it
        without executing the module: so all tests of the room follow in a last group.
        """
        lines = self.lines.get(file, {})
        executing = {test for tests in lines.values() for test in tests}
        found = {test for each in _statement(file, line) for test in lines.get(each, ())}
        others: set[str] = set()
        if not found:
            found, others = executing, set(self.seconds) - executing
        stem = Path(file).stem
        near = {test for test in found if stem in test.partition("::")[0]}
        groups = (sorted(group, key=self._rank) for group in (near, found - near, others))
        return [group for group in groups if group]

    def _rank(self, test: str) -> tuple[float, str]:
        return self.seconds.get(test, 0.0), test


def _statement(file: str, line: int) -> range:
    """Return the lines of the innermost statement; of a block, those before its body."""
    found = range(line, line + 1)
    path = ROOT / file
    tree = ast.parse(path.read_text(encoding="utf-8") if path.exists() else "")
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.end_lineno is not None:
            body: list[ast.stmt] = getattr(node, "body", [])
            end = body[0].lineno if body else node.end_lineno + 1
            if node.lineno <= line < end:
                found = range(node.lineno, end)
    return found


def coverage_map(room: Room) -> CoverageMap:
    """Return the map of a room, recorded if a file has changed since.

    Raises:
        RuntimeError: A test fails without a mutation.
    """
    path = BUILD / f"{room.name}.json"
    newest = max(file.stat().st_mtime for file in room.files())
    if not path.exists() or path.stat().st_mtime < newest:
        BUILD.mkdir(parents=True, exist_ok=True)
        child = get_context("spawn").Process(target=_record, args=(room.name, str(path)))
        child.start()
        child.join()
        if child.exitcode:
            raise RuntimeError(f"tests of {room.name} failed without a mutation: see their output")
    return msgspec.json.decode(path.read_bytes(), type=CoverageMap)


def _record(room_name: str, path: str) -> None:
    room = ROOMS[room_name]
    # Coverage names files by their real paths, not by the links in `tidelog/`.
    files = {str(ROOT / module): module for module in room.modules}
    coverage = Coverage(data_file=None, include=list(files), config_file=False)
    recorder = LineRecorder(coverage)
    coverage.start()
    code = pytest.main([*PYTEST_OPTIONS, *room.tests], plugins=[recorder])
    coverage.stop()
    data = coverage.get_data()
    lines = {
        module: {
            line: sorted(filter(None, tests))
            for line, tests in data.contexts_by_lineno(file).items()
            if any(tests)
        }
        for file, module in files.items()
    }
    result = CoverageMap(recorder.seconds, lines)
    assert any(lines.values()), "the tests execute no line of these modules"
    if code == pytest.ExitCode.OK:
        Path(path).write_bytes(msgspec.json.encode(result))
    sys.exit(int(code))
