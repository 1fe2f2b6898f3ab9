"""Opening a log trusts what a checkpoint vouches for, scans the rest, and refuses what is not its.

Torn tails, damage and crashes have test files of their own.
"""

import struct
from random import Random

import msgspec
import pytest
from crc32c import crc32c

from logstore.checkpoint import LogCheckpoint, read_small_file, write_small_file
from logstore.segment_format import SEGMENT_HEADER_SIZE, SegmentHeader
from tests.logstore.logs import (
    CHECKPOINT,
    DIRECTORY,
    NOW_MS,
    SMALL,
    TOPIC_ID,
    Opened,
    Producer,
    disk_of,
    expected,
    image_of,
    name_of,
    new_log,
    numbered,
    read_all,
    reopen,
)
from tests.simulation.faulty_disk import FaultyDisk
from wire.errors import DataDirectoryError, FencedProducerError


def long_log() -> Opened:
    """Return a log of several segments, all of it on disk, with a checkpoint at its end."""
    opened = new_log()
    opened.append_many(100)
    opened.flush(checkpoint=True)
    assert opened.log.segment_count > 2
    return opened


def read_bytes(disk: FaultyDisk) -> int:
    """Return how many bytes were asked for."""
    return sum(int(call[3]) for call in disk.calls if call[0] == "read_at")


def test_a_directory_that_is_not_there_becomes_an_empty_log_for_good() -> None:
    for seed in range(5):
        opened = new_log()
        assert (opened.log.log_start_offset, opened.log.log_end_offset) == (0, 0)
        assert opened.segment_bases() == [0]

        disk = opened.disk.power_cut(Random(seed))

        assert disk.list_directory(DIRECTORY) == [name_of(0)]
        assert len(disk.durable_bytes(opened.path())) == SEGMENT_HEADER_SIZE


def test_a_log_with_a_checkpoint_at_its_end_is_neither_scanned_nor_changed() -> None:
    opened = long_log()
    size = opened.log.size_bytes

    again = opened.kill()

    assert again.report.scanned_bytes == 0
    assert again.disk.changes == []
    assert again.log.begin_flush() is None
    assert read_bytes(again.disk) < size / 4, "headers, footers and the checkpoint"
    assert read_all(again.log) == expected(0, 100)


def test_only_what_lies_behind_the_checkpoint_is_scanned() -> None:
    opened = long_log()
    size = opened.disk.open(opened.path(opened.segment_bases()[-1])).size()
    opened.append(b"one more", leader_epoch=3)
    grown = opened.disk.open(opened.path(opened.segment_bases()[-1])).size()

    again = opened.kill()

    assert again.report.scanned_bytes == grown - size
    assert again.report.truncated_bytes == 0
    assert read_all(again.log) == {**expected(0, 100), 100: b"one more"}
    assert again.log.leader_epochs.entries == ((0, 0), (3, 100))


def test_a_scan_believes_the_disk_and_not_the_page_cache() -> None:
    """After a failed fsync the kernel shows pages that never reached the disk."""
    opened = new_log()
    opened.append_many(3)
    opened.flush()
    opened.append_many(2)
    opened.disk.fail("sync")
    with pytest.raises(OSError, match="Input/output error"):
        opened.flush()
    shown = opened.disk.open(opened.path()).size()
    assert shown > len(opened.disk.durable_bytes(opened.path()))

    again = opened.kill()

    assert again.log.log_end_offset == 3
    assert read_all(again.log) == expected(0, 3)
    calls = [call[0] for call in again.disk.calls if call[1] == opened.path()]
    assert calls.index("sync") < calls.index("drop_cache")


@pytest.mark.parametrize(
    "foreign",
    [
        SegmentHeader(b"another topic...", 3, 0),
        SegmentHeader(TOPIC_ID, 4, 0),
        SegmentHeader(TOPIC_ID, 3, 1),
    ],
    ids=["topic", "partition", "base offset"],
)
def test_a_segment_of_another_log_is_refused_and_left_alone(foreign: SegmentHeader) -> None:
    image = image_of(long_log().disk)
    data = foreign.to_bytes() + image[name_of(0)][SEGMENT_HEADER_SIZE:]
    disk = disk_of({**image, name_of(0): data})
    before = image_of(disk)

    with pytest.raises(DataDirectoryError, match="was it copied here") as caught:
        reopen(disk)

    assert f"/faulty/{DIRECTORY}/{name_of(0)}" in str(caught.value)
    assert image_of(disk) == before


def newer_segment(data: bytes) -> bytes:
    header = data[:8] + struct.pack("<H", 2) + data[10:60]
    return header + struct.pack("<I", crc32c(header)) + data[64:]


def newer_checkpoint(data: bytes) -> bytes:
    prefix = data[:4] + struct.pack("<H", 2) + data[6:12]
    return prefix + struct.pack("<I", crc32c(data[16:], crc32c(prefix))) + data[16:]


def test_files_of_a_newer_version_are_refused_and_left_alone() -> None:
    image = image_of(long_log().disk)
    last = max(name for name in image if name.endswith(".log"))
    for newer in (
        {last: newer_segment(image[last])},
        {"checkpoint": newer_checkpoint(image["checkpoint"])},
    ):
        disk = disk_of({**image, **newer})
        before = image_of(disk)

        with pytest.raises(DataDirectoryError, match="format version 2, this tidelog reads 1"):
            reopen(disk)

        assert image_of(disk) == before


def test_without_its_checkpoint_a_log_is_scanned_and_found_whole() -> None:
    opened = long_log()
    opened.disk.flip_bit(CHECKPOINT, 40, 3)
    image = image_of(opened.disk)
    del image["checkpoint"]

    damaged, lost = opened.kill(), reopen(disk_of(image))

    (note,) = damaged.report.notes
    assert note.endswith("; the whole log is scanned instead")
    assert not lost.report.notes
    for again in damaged, lost:
        assert again.report.scanned_bytes > 100 * 100
        assert not again.report.damage
        assert read_all(again.log) == expected(0, 100)
        again.flush()
        assert again.kill().report.scanned_bytes == 0


def test_a_checkpoint_with_an_index_that_cannot_be_read_is_as_good_for_everything_else() -> None:
    """An index of another version is no damage; nothing is found too late because of it."""
    opened = new_log()
    for number in range(20):
        opened.append(numbered(number), timestamp_ms=NOW_MS + number % 7)
    opened.flush(checkpoint=True)
    checkpoint = read_small_file(opened.disk, CHECKPOINT, LogCheckpoint)
    assert checkpoint is not None
    unreadable = msgspec.structs.replace(checkpoint, index=b"of another version")
    write_small_file(opened.disk, CHECKPOINT, unreadable)

    again = opened.kill()
    for number in range(20, 30):
        again.append(numbered(number), timestamp_ms=NOW_MS + number % 7)

    assert read_all(again.log) == expected(0, 30)
    for ahead in range(7):
        found = again.log.find_time(NOW_MS + ahead, high_watermark=30)
        assert found is not None
        assert found.offset == ahead


def test_retries_are_known_after_a_start_from_the_checkpoint_and_from_the_scan() -> None:
    opened = new_log()
    opened.append(b"one", b"two", producer=Producer(7, epoch=1))
    opened.flush(checkpoint=True)
    opened.append(b"three", producer=Producer(7, epoch=1, sequence=2))
    opened.append(b"four", producer=Producer(8, epoch=5))

    again = opened.kill()

    first = again.append(b"one", b"two", producer=Producer(7, epoch=1))
    second = again.append(b"three", producer=Producer(7, epoch=1, sequence=2))
    assert (first.base_offset, first.is_duplicate) == (0, True)
    assert (second.base_offset, second.is_duplicate) == (2, True)
    with pytest.raises(FencedProducerError):
        again.append(b"four", producer=Producer(8, epoch=4))
    assert again.log.log_end_offset == 4


def test_what_a_crash_left_lying_about_is_removed_and_other_files_stay() -> None:
    image = image_of(long_log().disk)
    orphans = {"checkpoint.tmp": b"half", name_of(7000, ".index"): b"of a removed segment"}
    others = {"notes.txt": b"of the operator", "7.log": b"not twenty digits"}

    opened = reopen(disk_of({**image, **orphans, **others}))

    assert image_of(opened.disk).keys() == image.keys() | others.keys()
    assert read_all(opened.log) == expected(0, 100)


def test_the_age_of_the_active_segment_outlives_a_start() -> None:
    opened = new_log()
    opened.append(b"first", now_ms=NOW_MS)
    opened.flush(checkpoint=True)
    image = image_of(opened.disk)
    restart_ms = NOW_MS + SMALL.roll_after_ms - 1
    known = reopen(disk_of(image), now_ms=restart_ms)
    del image["checkpoint"]
    unknown = reopen(disk_of(image), now_ms=restart_ms)

    for opened in known, unknown:
        opened.log.roll_if_old(now_ms=restart_ms + 1)

    assert known.log.segment_count == 2
    assert unknown.log.segment_count == 1
    unknown.log.roll_if_old(now_ms=restart_ms + SMALL.roll_after_ms)
    assert unknown.log.segment_count == 2


def test_deleted_records_stay_deleted_though_all_files_that_are_left_are_younger() -> None:
    opened = long_log()
    bases = opened.segment_bases()
    opened.log.delete_records(bases[1] + 1, high_watermark=100)
    opened.flush()
    opened.disk.remove(opened.path(bases[0]))

    again = opened.kill()

    assert again.log.log_start_offset == bases[1] + 1
    assert not again.report.damage
    assert read_all(again.log) == expected(bases[1] + 1, 100)
    again.append(numbered(100))
    assert read_all(again.kill().log) == expected(bases[1] + 1, 101)


@pytest.mark.parametrize("operation", ["read_at", "sync", "list_directory", "create"])
def test_a_disk_that_fails_is_not_taken_for_a_log_without_records(operation: str) -> None:
    opened = new_log()
    opened.append_many(3)
    opened.flush()
    opened.append_many(1)
    disk = opened.disk.kill() if operation != "create" else FaultyDisk()
    disk.fail(operation)

    with pytest.raises(OSError, match="Input/output error"):
        reopen(disk)

    if operation != "create":
        assert read_all(reopen(disk.kill()).log).items() >= expected(0, 3).items()
