"""Tests that the in-memory disk and the operating system's disk agree without faults."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.simulation.machine.disk_contents import contents
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.disk.disk import Disk, File
from tidelog.logstore.disk.os_disk import OsDisk

MEMORY = "/dev/shm"  # Thousands of real syncs would take seconds, without a benefit here.

PATHS = st.sampled_from(["a", "b", "a/a", "a/b", "b/a", "a/b/a", "a/b/b"])
POSITIONS = st.integers(0, 700)
PIECES = st.lists(st.binary(max_size=300), max_size=3)
FILE_CHANGES = st.one_of(
    st.tuples(st.just("write_at"), POSITIONS, PIECES),
    st.tuples(st.just("truncate"), POSITIONS),
    st.tuples(st.just("sync")),
)
DISK_CALLS = st.one_of(
    st.tuples(st.just("open"), PATHS, st.booleans()),
    st.tuples(st.just("make_directory"), PATHS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.sampled_from(["exists", "list_directory", "sync_directory"]), PATHS | st.just("")),
    st.tuples(st.sampled_from(["remove", "remove_directory"]), PATHS),
)
FILE_CALLS = st.one_of(
    FILE_CHANGES,
    st.tuples(st.just("read_at"), POSITIONS, POSITIONS),
    st.tuples(st.just("is_cached"), st.just(0), st.just(0)),
    st.tuples(st.sampled_from(["size", "drop_cache", "close"])),
)
FURNITURE = [("make_directory", "a/b"), ("open", "a/a", True), ("open", "b", True)]
STEPS = st.lists(st.tuples(st.integers(0, 3), FILE_CALLS) | DISK_CALLS | st.just("kill"))


class Process:
    """Executes the same steps on any disk, and records the results."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.files: list[File] = []

    def do(self, step: tuple[Any, ...]) -> object:
        try:
            match step:
                case (int(index), (str(operation), *arguments)):
                    return self.on_file(index, operation, arguments)
                case ("open", path, create):
                    self.files.append(self.disk.open(path, create=create))
                    return "opened"
                case _:
                    operation, *arguments = step
                    return getattr(self.disk, operation)(*arguments)
        except OSError as error:
            return type(error), error.errno

    def on_file(self, index: int, operation: str, arguments: list[Any]) -> object:
        if not self.files:
            return "nothing is open"
        file = self.files[index % len(self.files)]
        if operation == "close":
            self.files.remove(file)
        return getattr(file, operation)(*arguments)


@given(steps=STEPS)
@example(steps=[("make_directory", "c"), ("rename", "c", "a")])
@settings(max_examples=400)
def test_without_faults_it_is_a_real_disk(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None) as root:
        real, faulty = Process(OsDisk(root)), Process(disk := FaultyDisk())
        for step in FURNITURE:
            assert faulty.do(step) == real.do(step), step

        for step in steps:
            if step == "kill":  # A killed process leaves all bytes that it wrote.
                disk = disk.kill()
                real, faulty = Process(real.disk), Process(disk)
            else:
                assert faulty.do(step) == real.do(step), step

        assert contents(faulty.disk) == contents(real.disk)
