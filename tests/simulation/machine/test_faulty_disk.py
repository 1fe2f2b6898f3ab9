"""Tests of the faulty disk: exact without faults, and adversarial within the rules with them."""

import errno
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.simulation.machine.disk_contents import contents
from tests.simulation.machine.faulty_disk import FaultyDisk, StaleHandleError
from tests.simulation.machine.file_tree import Survival
from tidelog.logstore.disk.disk import Disk, File
from tidelog.wire.errors import DataDirectoryError

SEEDS = range(60)

POSITIONS = st.integers(0, 700)
PIECES = st.lists(st.binary(max_size=300), max_size=3)
FILE_CHANGES = st.one_of(
    st.tuples(st.just("write_at"), POSITIONS, PIECES),
    st.tuples(st.just("truncate"), POSITIONS),
    st.tuples(st.just("sync")),
)
DIRECTORIES = ["1", "2"]
NAMES = st.sampled_from(["1/a", "1/b", "2/a", "2/b"])
NAME_CALLS = st.one_of(
    st.tuples(st.just("make_directory"), NAMES),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("remove_directory"), NAMES),
    st.tuples(st.just("sync_directory"), st.sampled_from(DIRECTORIES)),
)


def written(disk: Disk, path: str, data: bytes) -> File:
    file = disk.open(path, create=True)
    file.write_at(0, [data])
    return file


def durable(disk: Disk, path: str, data: bytes) -> File:
    file = written(disk, path, data)
    file.sync()
    disk.sync_directory("")
    return file


def outcomes(disk: FaultyDisk) -> list[dict[str, bytes | None]]:
    return [contents(disk.power_cut(Random(seed))) for seed in SEEDS]


@given(changes=st.lists(FILE_CHANGES), seed=st.integers())
@settings(max_examples=200)
def test_only_bytes_with_unsynced_changes_are_in_doubt(changes: list[Any], seed: int) -> None:
    disk = FaultyDisk()
    synced = b"synced" * 100
    file = durable(disk, "file", synced)
    doubtful: set[int] = set()
    for operation, *arguments in changes:
        getattr(file, operation)(*arguments)
        match operation, arguments:
            case "write_at", (position, pieces):
                doubtful |= set(range(position, position + len(b"".join(pieces))))
            case "truncate", (size,):
                doubtful |= set(range(size, 2000))
            case _:
                synced = file.read_at(0, 2000)
                doubtful = set()

    found = contents(disk.power_cut(Random(seed)))["file"]

    assert found is not None
    certain = [place for place in range(len(synced)) if place not in doubtful]
    assert [found[place] for place in certain] == [synced[place] for place in certain]
    assert len(found) <= max([len(synced), *(place + 1 for place in doubtful)])
    assert doubtful or found == synced


@given(calls=st.lists(NAME_CALLS), seed=st.integers())
@example(
    calls=[("make_directory", "1/a"), ("rename", "1/a", "1/b"), ("sync_directory", "2")],
    seed=5,  # It keeps both.
)
@settings(max_examples=300)
def test_names_survive_in_the_order_in_which_they_were_changed(calls: list[Any], seed: int) -> None:
    disk = FaultyDisk()
    for directory in DIRECTORIES:
        disk.make_directory(directory)
    disk.sync_directory("")
    allowed = {directory: [disk.list_directory(directory)] for directory in DIRECTORIES}
    for operation, *arguments in calls:
        with suppress(FileNotFoundError):
            getattr(disk, operation)(*arguments)
        if operation == "sync_directory":
            allowed[arguments[0]].clear()
        for directory, states in allowed.items():
            states.append(disk.list_directory(directory))

    boot = disk.power_cut(Random(seed))

    for directory, states in allowed.items():
        assert boot.list_directory(directory) in states


def test_sectors_are_lost_or_kept_whole() -> None:
    disk = FaultyDisk()
    durable(disk, "file", b"").write_at(100, [b"x" * 2000])

    boots = [disk.power_cut(Random(seed)) for seed in SEEDS]

    found = [
        contents(boot)["file"] for boot in boots if Survival.SECTORS in boot.survivals.values()
    ]
    edges = {
        edge.start() for each in found for edge in re.finditer(rb"(?<=\0)x|(?<=x)\0", each or b"")
    }
    assert edges == {100, 512, 1024, 1536, 2048}


@pytest.mark.parametrize(
    ("survival", "pattern"),
    [
        (Survival.NOTHING, rb""),
        (Survival.PREFIX, rb"(x{1000}){0,2}x{1,999}"),
        (Survival.SECTORS, rb"x*\0+x+.*"),
        (Survival.SIZE, rb"\0{3000}"),
    ],
)
def test_bytes_are_lost_in_every_way(survival: Survival, pattern: bytes) -> None:
    disk = FaultyDisk()
    file = durable(disk, "file", b"")
    for position in 0, 1000, 2000:
        file.write_at(position, [b"x" * 1000])

    boots = [disk.power_cut(Random(seed)) for seed in SEEDS]

    found = [contents(boot)["file"] for boot in boots if boot.survivals == {"file": survival}]
    assert any(re.fullmatch(pattern, each or b"", re.DOTALL) for each in found)


def test_a_power_cut_keeps_a_synced_file_with_a_synced_name() -> None:
    disk = FaultyDisk()
    durable(disk, "file", b"data")

    boot = disk.power_cut(Random(0))

    assert contents(boot) == {"file": b"data"}
    assert boot.survivals == {}


def test_a_synced_file_without_a_synced_name_may_vanish() -> None:
    disk = FaultyDisk()
    written(disk, "file", b"data").sync()

    assert {} in outcomes(disk)
    assert {"file": b"data"} in outcomes(disk)


@pytest.mark.parametrize("directories", [["a"], ["a", ""]])
def test_a_name_is_durable_when_those_of_its_directories_are(directories: list[str]) -> None:
    disk = FaultyDisk()
    disk.make_directory("a")
    written(disk, "a/file", b"data").sync()

    for directory in directories:
        disk.sync_directory(directory)

    assert ({} in outcomes(disk)) == ("" not in directories)
    assert {"a": None, "a/file": b"data"} in outcomes(disk)


def test_an_unsynced_removal_may_be_undone() -> None:
    disk = FaultyDisk()
    durable(disk, "file", b"data")

    disk.remove("file")

    assert {"file": b"data"} in outcomes(disk)
    assert {} in outcomes(disk)


def test_a_rename_is_kept_whole_or_not_at_all() -> None:
    disk = FaultyDisk()
    durable(disk, "old", b"old")
    durable(disk, "new", b"new")

    disk.rename("new", "old")

    assert {str(found) for found in outcomes(disk)} == {
        str({"new": b"new", "old": b"old"}),
        str({"old": b"new"}),
    }


def test_a_durable_rename_leaves_no_second_name_behind() -> None:
    disk = FaultyDisk()
    disk.make_directory("a")
    disk.make_directory("b")
    disk.sync_directory("")
    written(disk, "a/file", b"data").sync()
    disk.rename("a/file", "b/file")

    disk.sync_directory("b")

    assert outcomes(disk) == [{"a": None, "b": None, "b/file": b"data"}] * len(SEEDS)


def test_one_crash_has_many_outcomes_and_each_seed_has_one() -> None:
    disk = FaultyDisk()
    durable(disk, "file", b"").write_at(0, [b"x" * 5000])

    first, second = outcomes(disk), outcomes(disk)

    assert first == second
    assert len({str(found) for found in first}) > len(Survival)


def test_a_failed_sync_shows_what_it_lost_until_the_cache_is_dropped() -> None:
    disk = FaultyDisk()
    file = durable(disk, "file", b"old")
    file.write_at(3, [b"new"])
    disk.fail("sync")

    with pytest.raises(OSError, match="Input/output error"):
        file.sync()

    file.sync()
    assert file.read_at(0, 6) == b"oldnew"
    assert contents(disk.kill()) == {"file": b"oldnew"}
    assert contents(disk.power_cut(Random(0))) == {"file": b"old\0\0\0"}


def test_dropping_the_cache_after_a_failed_sync_shows_the_durable_bytes() -> None:
    disk = FaultyDisk()
    file = durable(disk, "file", b"old")
    file.write_at(3, [b"lost"])
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.write_at(7, [b"dirty"])

    file.drop_cache()

    assert file.read_at(0, 100) == b"old\0\0\0\0dirty"


def test_a_sync_covers_writes_before_its_start() -> None:
    disk = FaultyDisk()
    file = durable(disk, "file", b"")
    file.write_at(0, [b"before"])
    disk.before_call = during_the_first("sync", lambda: file.write_at(6, [b"after"]))

    file.sync()

    assert file.read_at(0, 100) == b"beforeafter"
    assert disk.durable_bytes("file") == b"before"
    file.sync()
    assert disk.durable_bytes("file") == b"beforeafter"


def test_a_failed_sync_drops_writes_before_its_start() -> None:
    disk = FaultyDisk()
    file = durable(disk, "file", b"")
    file.write_at(0, [b"before"])
    disk.before_call = during_the_first("sync", lambda: file.write_at(6, [b"after"]))
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()

    file.sync()

    assert disk.durable_bytes("file") == b"\0" * 6 + b"after"


def during_the_first(operation: str, happening: Callable[[], None]) -> Callable[[str, str], None]:
    """Return a hook that calls `happening` once, in the middle of an operation."""
    pending = [happening]

    def hook(begun: str, _: str) -> None:
        if begun == operation and pending:
            pending.pop()()

    return hook


def test_calls_fail_when_where_and_as_often_as_told() -> None:
    disk = FaultyDisk()
    file, other = written(disk, "file", b"data"), written(disk, "other", b"data")
    disk.fail("read_at", path="file", error_number=errno.ENXIO, nth=2, count=2)

    def outcome(of: File) -> object:
        try:
            return of.read_at(0, 4)
        except OSError as error:
            return error.errno

    assert [outcome(file) for _ in range(4)] == [b"data", errno.ENXIO, errno.ENXIO, b"data"]
    assert outcome(other) == b"data"


def test_a_full_disk_takes_the_first_part_and_has_room_again_after_a_removal() -> None:
    disk = FaultyDisk(capacity_bytes=10)
    written(disk, "first", b"1234")
    file = disk.open("second", create=True)

    with pytest.raises(OSError, match="No space left"):
        file.write_at(0, [b"12345", b"6789"])

    assert file.read_at(0, 100) == b"123456"
    assert disk.free_bytes() == 0
    file.write_at(0, [b"abc"])
    disk.remove("first")
    assert disk.free_bytes() == 4
    file.write_at(6, [b"789"])
    assert file.read_at(0, 100) == b"abc456789"
    assert disk.kill().free_bytes() == 1


def test_bit_rot_is_visible_at_once_and_forever() -> None:
    disk = FaultyDisk()
    file = durable(disk, "file", b"\x00\x00\x00")

    disk.flip_bit("file", 1, 7)

    assert file.read_at(0, 3) == b"\x00\x80\x00"
    assert contents(disk.power_cut(Random(0))) == {"file": b"\x00\x80\x00"}


def test_only_durable_bytes_can_be_damaged() -> None:
    disk = FaultyDisk()
    written(disk, "file", b"data")

    with pytest.raises(AssertionError):
        disk.damage("file", 0, b"rot")


def test_a_sector_can_go_stale() -> None:
    disk = FaultyDisk()
    file = durable(disk, "file", b"old" * 512)
    old = disk.durable_bytes("file")[512:1024]
    file.write_at(0, [b"new" * 512])
    file.sync()

    disk.damage("file", 512, old)

    found = file.read_at(0, 2000)
    assert found[512:1024] == old
    assert found[:512] + found[1024:] == (b"new" * 512)[:512] + (b"new" * 512)[1024:]


def test_a_file_can_lose_its_end() -> None:
    disk = FaultyDisk()
    file = durable(disk, "file", b"123456")
    file.write_at(6, [b"789"])

    disk.cut_file("file", 4)

    assert file.read_at(0, 100) == b"1234"
    assert outcomes(disk) == [{"file": b"1234"}] * len(SEEDS)


def test_every_call_of_a_dead_process_fails() -> None:
    disk = FaultyDisk()
    file, lock = written(disk, "file", b"data"), disk.lock("lock")
    uses: list[Callable[[], object]] = [
        file.size,
        file.sync,
        file.close,
        file.drop_cache,
        lock.release,
        disk.free_bytes,
        lambda: file.read_at(0, 1),
        lambda: file.write_at(0, [b"more"]),
        lambda: disk.open("file"),
        lambda: disk.remove("file"),
        lambda: disk.sync_directory(""),
    ]

    successor = disk.kill()

    for use in uses:
        with pytest.raises(StaleHandleError):
            use()
    assert contents(successor) == {"file": b"data", "lock": b""}


def test_a_lock_is_held_until_it_is_released_or_the_process_ends() -> None:
    disk = FaultyDisk(root="/data")
    lock = disk.lock("lock")

    with pytest.raises(DataDirectoryError, match="/data is in use by process 1; stop it"):
        disk.lock("lock")

    lock.release()
    disk.lock("lock")
    disk.kill().lock("lock")
    disk.power_cut(Random(0)).lock("lock")


def test_a_cold_path_is_not_cached() -> None:
    disk = FaultyDisk()
    file, other = written(disk, "file", b"data"), written(disk, "other", b"data")

    disk.cold_paths.add("file")

    assert not file.is_cached(0, 4)
    assert other.is_cached(0, 4)
    assert file.fileno() is None


def replace(disk: Disk) -> None:
    """Replace the file `name`, as every small file of a log is replaced."""
    file = disk.open("name.new", create=True)
    try:
        file.write_at(0, [b"new", b" bytes"])
        file.sync()
    finally:
        file.close()
    disk.rename("name.new", "name")
    disk.sync_directory("")


def test_the_calls_on_which_durability_rests_are_recorded() -> None:
    disk = FaultyDisk()

    replace(disk)

    assert disk.changes == [
        ("create", "name.new"),
        ("write_at", "name.new", 0, 9),
        ("sync", "name.new"),
        ("rename", "name.new", "name"),
        ("sync_directory", ""),
    ]
    assert ("close", "name.new") in disk.calls


class Crash(BaseException):
    """Raised by a hook."""


@pytest.mark.parametrize("crash_at", range(7))
def test_a_crash_at_any_call_leaves_the_old_or_the_new_file(crash_at: int) -> None:
    disk = FaultyDisk()
    durable(disk, "name", b"old")
    crash_at += len(disk.calls)

    def crash(operation: str, path: str) -> None:
        if len(disk.calls) == crash_at + 1:
            raise Crash(operation, path)

    disk.before_call = crash
    crashed = False
    try:
        replace(disk)
    except (Crash, StaleHandleError):  # The second when the exit path still tries to close.
        crashed = True
        with pytest.raises(StaleHandleError):
            disk.remove("name")

    assert crashed == (crash_at < len(disk.calls))
    for found in outcomes(disk):
        assert found["name"] in ({b"old", b"new bytes"} if crashed else {b"new bytes"})


def test_a_hook_can_fail_a_call_without_a_crash() -> None:
    disk = FaultyDisk()

    def refuse(operation: str, path: str) -> None:
        if operation == "create":
            raise OSError(errno.EMFILE, "Too many open files", path)

    disk.before_call = refuse

    with pytest.raises(OSError, match="Too many open files"):
        disk.open("file", create=True)

    assert not disk.exists("file")


def test_files_change_while_a_thread_syncs_them() -> None:
    disk = FaultyDisk()
    file = disk.open("file", create=True)

    with ThreadPoolExecutor(1) as thread:
        syncs = [thread.submit(file.sync) for _ in range(1000)]
        for position in range(1000):
            file.write_at(position, [b"x"])
    file.sync()

    assert [sync.exception() for sync in syncs] == [None] * 1000
    assert disk.durable_bytes("file") == file.read_at(0, 2000)


def test_a_copy_of_a_disk_keeps_its_files_when_the_disk_changes() -> None:
    disk = FaultyDisk()
    file = written(disk, "a", b"before")
    copied = disk.copy()

    file.write_at(0, [b"behind"])

    assert copied.visible_bytes("a") == b"before"
    assert disk.visible_bytes("a") == b"behind"
