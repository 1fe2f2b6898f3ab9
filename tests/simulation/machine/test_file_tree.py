"""Tests of unsynced changes, and of changes whose sync failed, after a power cut."""

import errno
from random import Random

import pytest

from tests.simulation.machine.faulty_disk import FaultyDisk
from tests.simulation.machine.file_tree import SECTOR_BYTES
from tidelog.logstore.disk.disk import File

SEEDS = range(100)


def new_file(disk: FaultyDisk, path: str) -> File:
    file = disk.open(path, create=True)
    disk.sync_directory("")
    return file


@pytest.mark.parametrize("first", ["1", "2"])
def test_the_names_of_one_directory_survive_without_earlier_ones_of_another(first: str) -> None:
    disk = FaultyDisk()
    for directory in "1", "2":
        disk.make_directory(directory)
    disk.sync_directory("")
    second = {"1": "2", "2": "1"}[first]
    disk.make_directory(f"{first}/made first")
    disk.make_directory(f"{second}/made second")

    boots = [disk.power_cut(Random(seed)) for seed in SEEDS]

    kept = {tuple(bool(boot.list_directory(each)) for each in (first, second)) for boot in boots}
    assert kept == {(False, False), (False, True), (True, False), (True, True)}


def test_no_name_of_a_directory_survives_without_an_earlier_one_of_the_same() -> None:
    disk = FaultyDisk()
    for name in "a", "b", "c":
        disk.make_directory(name)

    kept = {tuple(disk.power_cut(Random(seed)).list_directory("")) for seed in SEEDS}

    assert kept == {(), ("a",), ("a", "b"), ("a", "b", "c")}


def test_a_failed_sync_may_leave_any_sectors_as_they_were_shown() -> None:
    old, new = b"o" * 3 * SECTOR_BYTES, b"n" * 3 * SECTOR_BYTES
    found: set[bytes] = set()
    for seed in SEEDS:
        disk = FaultyDisk()
        disk.failed_sync_random = Random(seed)
        file = new_file(disk, "file")
        file.write_at(0, [old])
        file.sync()
        file.write_at(0, [new])
        disk.fail("sync")
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()

        assert file.read_at(0, len(new)) == new, "the cache still shows it"
        file.sync()  # No change is left to sync.
        found.add(disk.durable_bytes("file"))

    assert len(found) == 2**3
    for data in found:
        sectors = {
            data[start : start + SECTOR_BYTES] for start in range(0, len(data), SECTOR_BYTES)
        }
        assert sectors <= {b"o" * SECTOR_BYTES, b"n" * SECTOR_BYTES}


def test_the_disk_of_the_next_process_fails_to_sync_in_the_same_way() -> None:
    disk = FaultyDisk()
    disk.failed_sync_random = Random(0)

    assert disk.kill().failed_sync_random is disk.failed_sync_random
    assert disk.power_cut(Random(0)).failed_sync_random is disk.failed_sync_random


def test_a_full_disk_has_no_room_for_names() -> None:
    disk = FaultyDisk(capacity_bytes=3)
    new_file(disk, "file").write_at(0, [b"abc"])

    for make in (lambda: disk.open("other", create=True), lambda: disk.make_directory("sub")):
        with pytest.raises(OSError, match="No space left") as raised:
            make()
        assert raised.value.errno == errno.ENOSPC

    assert disk.list_directory("") == ["file"]
    disk.remove("file")
    disk.make_directory("sub")
