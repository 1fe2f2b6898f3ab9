"""The file cache bounds open files and indexes, without effect on their users."""

import errno
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.offset_index import OffsetIndex


def disk_with(*paths: str) -> FaultyDisk:
    disk = FaultyDisk()
    for path in paths:
        disk.open(path, create=True).write_at(0, [path.encode()])
    disk.calls.clear()
    return disk


def opened(disk: FaultyDisk) -> list[str]:
    return [str(path) for operation, path, *_ in disk.calls if operation in {"open", "create"}]


def new_index() -> OffsetIndex:
    return OffsetIndex(base_offset=0, interval_bytes=100)


def test_a_file_is_opened_once_while_it_is_used() -> None:
    files = FileCache(disk := disk_with("a"))

    assert files.file("a") is files.file("a")
    assert opened(disk) == ["a"]


def test_the_least_recently_used_file_is_evicted() -> None:
    files = FileCache(disk := disk_with("a", "b", "c"), max_open_files=2)
    for path in "a", "b", "a", "c":
        files.file(path)

    files.file("a")
    files.file("b")

    assert opened(disk) == ["a", "b", "c", "b"]


def test_an_evicted_file_still_works_for_its_holder() -> None:
    files = FileCache(disk_with("a", "b"), max_open_files=1)
    held = files.file("a")

    files.file("b")

    assert held.read_at(0, 10) == b"a"
    held.write_at(1, [b"!"])
    held.sync()
    assert files.file("a").read_at(0, 10) == b"a!"


def test_an_evicted_file_is_closed_with_its_last_reference() -> None:
    files = FileCache(disk_with("a", "b"), max_open_files=1)
    reference = weakref.ref(files.file("a"))

    files.file("b")

    gc.collect()
    assert reference() is None


def test_a_file_is_created_on_request() -> None:
    files = FileCache(disk := FaultyDisk())

    with pytest.raises(FileNotFoundError):
        files.file("a")
    files.file("a", create=True)

    assert disk.exists("a")


def test_a_forgotten_path_is_opened_again() -> None:
    files = FileCache(disk := disk_with("a"))
    old = files.file("a")
    disk.remove("a")
    disk.open("a", create=True).write_at(0, [b"new"])

    files.forget("a")
    files.forget("never seen")

    assert old.read_at(0, 10) == b"a"
    assert files.file("a").read_at(0, 10) == b"new"


def test_without_a_free_descriptor_the_cache_closes_its_files() -> None:
    files = FileCache(disk := disk_with("a", "b"))
    reference = weakref.ref(files.file("a"))
    disk.fail("open", path="b", error_number=errno.EMFILE)

    file = files.file("b")

    assert file.read_at(0, 10) == b"b"
    gc.collect()
    assert reference() is None


def test_other_errors_of_opening_are_passed_on() -> None:
    files = FileCache(disk := disk_with("a"))
    disk.fail("open", error_number=errno.EIO)

    with pytest.raises(OSError, match="Input/output error"):
        files.file("a")


def test_an_index_is_loaded_once_and_the_least_recently_used_one_is_evicted() -> None:
    files = FileCache(FaultyDisk(), indexes_max=2)
    loaded: list[str] = []

    def index(path: str) -> None:
        def load() -> OffsetIndex:
            loaded.append(path)
            return new_index()

        assert files.index(path, load) is files.index(path, load)

    for path in "a", "b", "a", "c", "a", "b":
        index(path)
    files.forget("b")
    index("b")

    assert loaded == ["a", "b", "c", "b", "b"]


def test_threads_do_not_disturb_each_other() -> None:
    paths = [f"{number}" for number in range(8)]
    files = FileCache(disk_with(*paths), max_open_files=3)

    def use(seed: int) -> bool:
        return all(
            files.file(path).read_at(0, 10) == path.encode()
            for step in range(300)
            for path in [paths[(seed * step + step) % len(paths)]]
        )

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(use, range(4)))


def test_dropped_files_and_indexes_are_opened_again() -> None:
    disk = disk_with("a")
    files = FileCache(disk)
    file, index = files.file("a"), files.index("a.index", new_index)

    files.clear()

    assert files.file("a") is not file
    assert files.index("a.index", new_index) is not index
    assert file.read_at(0, 1) == b"a", "holders of the file still use it"
