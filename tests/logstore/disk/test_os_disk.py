"""The operating system's disk. What it shares with the faulty disk is in `test_faulty_disk`."""

import errno
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.paths import ROOT
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.disk.os_disk import OsDisk, OsFile
from tidelog.wire.errors import DataDirectoryError

UNPRIVILEGED_UID = 65534

HOLD_LOCK = """
import sys
from tidelog.logstore.disk.os_disk import OsDisk
lock = OsDisk(sys.argv[1]).lock("lock")
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return OsDisk(str(tmp_path / "data"))


@contextmanager
def ordinary_user() -> Generator[None]:
    user = os.geteuid()
    if user == 0:
        os.seteuid(UNPRIVILEGED_UID)
    try:
        yield
    finally:
        os.seteuid(user)


@contextmanager
def file_size_limit(size: int) -> Generator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def open_descriptors() -> set[int]:
    listed = [int(each.name) for each in Path("/proc/self/fd").iterdir()]
    # Includes the descriptor that listed the directory, which is closed by now.
    return {descriptor for descriptor in listed if Path(f"/proc/self/fd/{descriptor}").exists()}


def can_tell_what_is_cached(file: OsFile) -> bool:
    """Whether the file system supports the probe; tmpfs, for example, does not."""
    try:
        os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
    except OSError as error:
        return error.errno != errno.EOPNOTSUPP
    return True


def test_pieces_are_written_one_after_the_other(disk: Disk) -> None:
    file = disk.open("file", create=True)

    file.write_at(2, [b"ab", b"", bytearray(b"cd"), memoryview(b"ef")])

    assert file.read_at(0, 100) == b"\0\0abcdef"


def test_a_short_read_continues() -> None:
    descriptor = os.open("/proc/self/smaps", os.O_RDONLY)  # It is cached page by page.

    data = OsFile(descriptor).read_at(0, 3 * 4096)

    assert len(data) == 3 * 4096


def test_there_may_be_more_pieces_than_the_kernel_takes_at_once(disk: Disk) -> None:
    pieces = [b"%d," % number for number in range(3 * os.sysconf("SC_IOV_MAX"))]
    file = disk.open("file", create=True)

    file.write_at(0, pieces)

    assert file.read_at(0, file.size()) == b"".join(pieces)


def test_no_pieces_write_nothing(disk: Disk) -> None:
    file = disk.open("file", create=True)

    file.write_at(10, [])
    file.write_at(10, [b""])

    assert file.size() == 0


def test_a_short_write_continues_and_then_fails(disk: Disk) -> None:
    file = disk.open("file", create=True)

    with file_size_limit(4096), pytest.raises(OSError, match="too large"):
        file.write_at(0, [b"a" * 3000, b"b" * 3000])

    assert file.read_at(0, 6000) == b"a" * 3000 + b"b" * 1096


def test_a_full_disk_is_named_as_such() -> None:
    file = OsFile(os.open("/dev/full", os.O_RDWR))

    with pytest.raises(OSError, match="No space left") as caught:
        file.write_at(0, [b"data"])

    assert caught.value.errno == errno.ENOSPC


def test_others_than_owner_and_group_read_nothing(disk: Disk) -> None:
    disk.make_directory("a/b")
    disk.open("a/b/file", create=True)

    for name in ("", "a", "a/b", "a/b/file"):
        assert not stat.S_IMODE((Path(disk.root) / name).stat().st_mode) & 0o027


@pytest.mark.parametrize("path", ["..", "../file", "a/../../file", "/etc/passwd", "a//b", "./a"])
def test_a_path_outside_the_root_is_a_mistake(disk: Disk, path: str) -> None:
    with pytest.raises(AssertionError, match="escapes"):
        disk.exists(path)
    with pytest.raises(AssertionError, match="escapes"):
        disk.make_directory(path)


def test_the_root_itself_is_never_removed(disk: Disk) -> None:
    with pytest.raises(AssertionError):
        disk.remove_directory("")


def test_free_bytes_are_reported(disk: Disk) -> None:
    assert disk.free_bytes() > 0


def test_a_missing_root_is_made_with_its_parents(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path / "a" / "b"))

    assert disk.root == str(tmp_path / "a" / "b")
    assert disk.list_directory("") == []


@pytest.mark.parametrize("below", ["", "/below"])
def test_a_root_that_is_or_goes_through_a_file_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    root = f"{tmp_path}/file{below}"

    with pytest.raises(DataDirectoryError) as caught:
        OsDisk(root)

    assert str(caught.value) == (
        f"data directory {root} cannot be created: Not a directory; choose another --data-dir"
    )


def test_a_root_that_may_not_be_written_is_refused() -> None:
    with ordinary_user(), pytest.raises(DataDirectoryError, match=r"/ cannot be read and written"):
        OsDisk("/")


TRIES = 1000
"""A question for what is not cached makes the kernel read it, and a fast disk has it before the
answer is given. So a cold part is not always seen, but it is seen."""


def test_what_is_dropped_from_the_cache_is_not_cached_until_it_is_read(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    file = disk.open("file", create=True)
    file.write_at(0, [bytes(1 << 20)])
    file.sync()
    if not can_tell_what_is_cached(file):
        pytest.skip("this file system cannot tell what is cached")
    was_cached = file.is_cached(0, 1 << 20)

    def is_cold_once_dropped() -> bool:
        file.drop_cache()
        return not file.is_cached(0, 1 << 20)

    assert was_cached
    assert any(is_cold_once_dropped() for _ in range(TRIES))
    file.read_at(0, 1 << 20)
    assert file.is_cached(0, 1 << 20)


@pytest.mark.parametrize("cold_start", [0, 5 << 16, 15 << 16])
def test_one_cold_part_makes_a_range_cold(tmp_path: Path, cold_start: int) -> None:
    file = OsDisk(str(tmp_path)).open("file", create=True)
    file.write_at(0, [bytes(1 << 20)])
    file.sync()
    if not can_tell_what_is_cached(file):
        pytest.skip("this file system cannot tell what is cached")
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead

    def is_cold_with_one_part_dropped() -> bool:
        file.drop_cache()
        for start in range(0, 1 << 20, 1 << 16):
            if start != cold_start:
                file.read_at(start, 1 << 16)
        return not file.is_cached(0, 1 << 20)

    assert any(is_cold_with_one_part_dropped() for _ in range(TRIES))


def test_an_empty_range_counts_as_cached(disk: Disk) -> None:
    file = disk.open("file", create=True)

    assert file.is_cached(0, 0)
    assert file.is_cached(1000, 1000)


def test_a_closed_file_takes_no_changes_but_can_be_read_and_synced(disk: Disk) -> None:
    file = disk.open("file", create=True)
    file.write_at(0, [b"data"])

    file.close()
    file.close()

    file.sync()
    assert file.read_at(0, 4) == b"data"
    with pytest.raises(AssertionError):
        file.write_at(0, [b"more"])
    with pytest.raises(AssertionError):
        file.truncate(0)


def test_a_descriptor_lives_as_long_as_a_reference_to_the_file(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    file = disk.open("file", create=True)
    queued_for_sending = file
    descriptor = file.fileno()
    assert not os.get_inheritable(descriptor)

    file.close()
    del file
    others = [disk.open("other", create=True) for _ in range(20)]

    assert descriptor in open_descriptors()
    assert descriptor not in [other.fileno() for other in others]
    del queued_for_sending
    assert descriptor not in open_descriptors()


def test_files_that_are_closed_while_threads_sync_them_are_synced(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    descriptors_before = open_descriptors()
    syncs: list[Future[None]] = []

    with ThreadPoolExecutor(4) as threads:
        for number in range(100):
            file = disk.open(f"{number}", create=True)
            file.write_at(0, [b"data"])
            syncs.append(threads.submit(file.sync))
            file.close()
            del file

    assert [sync.exception() for sync in syncs] == [None] * 100
    assert open_descriptors() <= descriptors_before


def test_a_lock_excludes_another_process_until_that_one_is_killed(disk: Disk) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, disk.root],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"

        with pytest.raises(DataDirectoryError) as caught:
            disk.lock("lock")

        holder.kill()
        holder.wait()
    assert str(caught.value) == (
        f"data directory {disk.root} is in use by process {holder.pid}; "
        "stop it or choose another --data-dir"
    )
    disk.lock("lock").release()


def test_a_lock_excludes_the_process_itself_until_it_is_released(disk: Disk) -> None:
    lock = disk.lock("lock")

    with pytest.raises(DataDirectoryError, match=f"process {os.getpid()};"):
        disk.lock("lock")

    lock.release()
    lock.release()
    disk.lock("lock").release()


def test_a_lock_that_cannot_be_taken_is_explained(disk: Disk) -> None:
    disk.make_directory("lock")

    with pytest.raises(DataDirectoryError, match="cannot be locked: Is a directory"):
        disk.lock("lock")
