"""A small file has its old or its new content after a crash, and its damage is detected."""

import errno
import struct
from functools import partial
from itertools import count
from random import Random

import msgspec
import pytest
from crc32c import crc32c

from tests.logstore.crashes import POWER_CUTS, crash
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.checkpoint import (
    DamagedFileError,
    LogCheckpoint,
    read_small_file,
    write_small_file,
)
from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.producer_state import AppendedBatch, ProducerState
from tidelog.wire.errors import DataDirectoryError

PATH = "topic/checkpoint"
CONTENT = LogCheckpoint(
    log_start_offset=5,
    recovery_offset=100,
    recovery_base_offset=90,
    recovery_position=4096,
    max_timestamp_ms=1_700_000_000_000,
    first_append_ms=None,
    index=b"index",
    leader_epochs=[(0, 0), (3, 50)],
    producers=[ProducerState(7, 1, 1_700_000_000_000, (AppendedBatch(0, 10, 90),))],
    damage=[DamagedRange(60, 70)],
    high_watermark=80,
)


def disk_with(content: object) -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_directory("topic")
    disk.sync_directory("")
    write_small_file(disk, PATH, content)
    return disk


def with_data(data: bytes) -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_directory("topic")
    disk.open(PATH, create=True).write_at(0, [data])
    return disk


def read(disk: FaultyDisk) -> LogCheckpoint | None:
    return read_small_file(disk, PATH, LogCheckpoint)


DATA = disk_with(CONTENT).durable_bytes(PATH)


def test_what_was_written_is_read() -> None:
    assert read(disk_with(CONTENT)) == CONTENT


def test_a_missing_small_file_is_no_error() -> None:
    assert read(FaultyDisk()) is None


def test_a_file_in_the_root_can_be_replaced() -> None:
    disk = FaultyDisk()

    write_small_file(disk, "node", [1, 2])

    assert read_small_file(disk.power_cut(Random(0)), "node", list[int]) == [1, 2]


@pytest.mark.invariant("I12")
def test_every_truncation_is_noticed() -> None:
    for size in range(len(DATA)):
        with pytest.raises(DamagedFileError):
            read(with_data(DATA[:size]))


def test_bytes_behind_the_end_are_noticed() -> None:
    with pytest.raises(DamagedFileError, match="does not match its length"):
        read(with_data(DATA + b"\0"))


@pytest.mark.invariant("I12")
def test_every_flipped_bit_is_noticed() -> None:
    for bit in range(len(DATA) * 8):
        damaged = bytearray(DATA)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedFileError):
            read(with_data(bytes(damaged)))


def test_a_newer_version_is_refused_with_advice() -> None:
    prefix, body = DATA[:4] + struct.pack("<H", 2) + DATA[6:12], DATA[16:]
    crc = struct.pack("<I", crc32c(body, crc32c(prefix)))

    with pytest.raises(DataDirectoryError, match="version 2, this tidelog reads 1; use the"):
        read(with_data(prefix + crc + body))


def test_content_of_another_kind_is_damage() -> None:
    with pytest.raises(DamagedFileError, match="cannot be decoded"):
        read(disk_with({"something": "else"}))


def test_fields_that_a_later_version_appends_are_left_alone() -> None:
    longer = [*msgspec.structs.astuple(CONTENT), "a field of the future"]

    assert read(disk_with(longer)) == CONTENT


@pytest.mark.invariant("I18")
def test_a_crash_between_any_two_disk_calls_leaves_the_old_or_the_new_content() -> None:
    new = msgspec.structs.replace(CONTENT, recovery_offset=200, index=bytes(5000))
    found = set[int]()
    disk = disk_with(CONTENT)
    for number in count():
        disk = disk_with(CONTENT)
        call = crash(disk, number, partial(write_small_file, disk, PATH, new))
        for seed in (None, *POWER_CUTS):
            content = read(disk.kill() if seed is None else disk.power_cut(Random(seed)))
            assert content in {CONTENT.recovery_offset: CONTENT, 200: new}.values()
            assert content is not None
            found.add(content.recovery_offset)
        if call is None:
            break

    assert found == {100, 200}
    assert read(disk.power_cut(Random(0))) == new


@pytest.mark.parametrize("operation", ["create", "write_at", "sync", "rename"])
def test_a_failure_leaves_the_old_content_and_no_garbage(operation: str) -> None:
    disk = disk_with(CONTENT)
    disk.fail(operation, path=f"{PATH}.tmp", error_number=errno.ENOSPC)

    with pytest.raises(OSError, match="No space left"):
        write_small_file(disk, PATH, [1])

    assert read(disk) == CONTENT
    assert disk.list_directory("topic") == ["checkpoint"]


def test_a_leftover_temporary_file_is_replaced() -> None:
    disk = disk_with(CONTENT)
    disk.open(f"{PATH}.tmp", create=True).write_at(0, [bytes(10_000)])

    write_small_file(disk, PATH, CONTENT)

    assert read(disk) == CONTENT
    assert disk.list_directory("topic") == ["checkpoint"]


def test_a_checkpoint_without_a_high_watermark_is_read() -> None:
    older = list(msgspec.structs.astuple(CONTENT))[:-3]

    assert read_small_file(disk_with(older), PATH, LogCheckpoint) == msgspec.structs.replace(
        CONTENT, high_watermark=0
    )
