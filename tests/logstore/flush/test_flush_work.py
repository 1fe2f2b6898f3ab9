"""A flush makes durable what it was told to, in an order that a power cut cannot harm."""

import errno
from random import Random

import msgspec
import pytest

from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.checkpoint import LogCheckpoint, read_small_file
from tidelog.logstore.flush.flush_work import Flush, FlushWork
from tidelog.logstore.segments.log_position import LogPosition

DIRECTORY = "log"
POSITION = LogPosition(10, 0, 500)
CHECKPOINT = LogCheckpoint(
    log_start_offset=0,
    recovery_offset=10,
    recovery_base_offset=0,
    recovery_position=500,
    max_timestamp_ms=0,
    first_append_ms=None,
    index=b"",
    leader_epochs=[],
    producers=[],
    damage=[],
)


def flush_on(
    disk: FaultyDisk, *names: str, has_new_names: bool = False, has_checkpoint: bool = False
) -> Flush:
    """Return a flush of new files."""
    disk.make_directory(DIRECTORY)
    disk.sync_directory("")
    files = {name: disk.open(f"{DIRECTORY}/{name}", create=True) for name in names}
    for file in files.values():
        file.write_at(0, [b"bytes"])
    disk.calls.clear()
    work = FlushWork(files, POSITION, has_new_names, CHECKPOINT if has_checkpoint else None, 0)
    return Flush(disk, DIRECTORY, work)


def test_bytes_and_then_names_and_then_the_checkpoint_become_durable() -> None:
    disk = FaultyDisk()

    flush_on(disk, "a", "b", has_new_names=True, has_checkpoint=True).run()

    assert [(operation, path) for operation, path, *_ in disk.changes] == [
        ("sync", "log/a"),
        ("sync", "log/b"),
        ("sync_directory", "log"),
        ("remove", "log/checkpoint.tmp"),
        ("create", "log/checkpoint.tmp"),
        ("write_at", "log/checkpoint.tmp"),
        ("sync", "log/checkpoint.tmp"),
        ("rename", "log/checkpoint.tmp"),
        ("sync_directory", "log"),
    ]
    boot = disk.power_cut(Random(0))
    assert read_small_file(boot, "log/checkpoint", LogCheckpoint) == CHECKPOINT


def test_names_and_checkpoints_cost_nothing_when_there_are_none() -> None:
    disk = FaultyDisk()
    flush = flush_on(disk, "a")

    flush.run()

    assert disk.changes == [("sync", "log/a")]
    assert flush.is_done
    assert not flush.is_running
    assert flush.error is None


def test_a_checkpoint_that_is_left_for_later_is_not_written() -> None:
    disk = FaultyDisk()
    work = msgspec.structs.replace(
        flush_on(disk, "a", has_checkpoint=True).work, leaves_checkpoint=True
    )

    Flush(disk, DIRECTORY, work).run()

    assert disk.changes == [("sync", "log/a")]


@pytest.mark.parametrize("operation", ["sync", "sync_directory", "rename"])
def test_a_failure_is_raised_and_remembered(operation: str) -> None:
    disk = FaultyDisk()
    flush = flush_on(disk, "a", has_new_names=True, has_checkpoint=True)
    disk.fail(operation)

    with pytest.raises(OSError, match="Input/output error"):
        flush.run()

    assert flush.error is not None
    assert not flush.is_done
    assert not flush.is_running


def test_no_room_for_the_checkpoint_does_not_make_the_records_less_durable() -> None:
    disk = FaultyDisk()
    flush = flush_on(disk, "a", has_checkpoint=True)
    disk.fail("write_at", path="log/checkpoint.tmp", error_number=errno.ENOSPC)

    flush.run()

    assert flush.is_done
    assert flush.had_no_room
    assert disk.list_directory("log") == ["a"]


def test_no_room_for_the_records_is_a_failure_of_the_disk() -> None:
    disk = FaultyDisk()
    flush = flush_on(disk, "a")
    disk.fail("sync", path="log/a", error_number=errno.ENOSPC)

    with pytest.raises(OSError, match="No space left"):
        flush.run()
