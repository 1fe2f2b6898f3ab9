"""Recovery trusts the log below the recovery point, scans the rest, and refuses foreign files."""

import struct
from random import Random

import pytest
from crc32c import crc32c

from tests.logstore.logs import (
    CHECKPOINT,
    DIRECTORY,
    NOW_MS,
    OWNER,
    SMALL,
    TOPIC_ID,
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
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.config import LogConfig
from tidelog.logstore.log import Appended
from tidelog.logstore.recovery.recovery import open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment_format import SegmentHeader
from tidelog.wire.errors import DataDirectoryError

TINY = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def newer(data: bytes, *, version_at: int, crc_at: int) -> bytes:
    """Return a header of the next format version with a right checksum."""
    head = data[:version_at] + struct.pack("<H", 2) + data[version_at + 2 : crc_at]
    return head + struct.pack("<I", crc32c(head)) + data[crc_at + 4 :]


# New logs


@pytest.mark.invariant("I18")
def test_a_new_log_survives_a_power_failure_with_its_directories() -> None:
    opened = new_log()
    opened.append_many(3)
    opened.flush()

    for seed in range(20):
        assert read_all(opened.cut_power(seed).log) == expected(0, 3)


def test_a_directory_that_a_crash_left_empty_is_made_durable_too() -> None:
    disk = FaultyDisk()
    disk.make_directory(DIRECTORY)
    opened = reopen(disk)
    opened.append_many(3)
    opened.flush()

    for seed in range(20):
        assert read_all(opened.cut_power(seed).log) == expected(0, 3)


@pytest.mark.invariant("I13")
def test_recovery_removes_leftovers_of_a_crash() -> None:
    opened = new_log()
    opened.append_many(3)
    image = image_of(opened.disk)
    rubbish = {"checkpoint.tmp": b"half", name_of(77, ".index"): b"orphan"}

    again = reopen(disk_of({**image, **rubbish}))

    assert again.disk.list_directory(DIRECTORY) == [name_of(0)]
    assert read_all(again.log) == expected(0, 3)


def test_files_with_other_names_are_left_alone() -> None:
    opened = new_log()
    opened.append_many(3)
    others = {"notes": b"mine", "123.log": b"mine", "x.index": b"mine", "00.log.stale": b"old"}

    again = reopen(disk_of({**image_of(opened.disk), **others}))

    assert image_of(again.disk).items() >= others.items()
    assert read_all(again.log) == expected(0, 3)


# The trusted part


def test_sealed_segments_below_the_checkpoint_are_not_read() -> None:
    opened = new_log(TINY)
    opened.append_many(50)
    opened.flush(checkpoint=True)

    again = opened.kill()

    read_bytes = sum(int(call[3]) for call in again.disk.calls if call[0] == "read_at")
    assert read_bytes < 128 * again.log.segment_count + 2000
    assert again.disk.changes == []
    assert again.log.size_bytes == opened.log.size_bytes


def test_recovery_scans_only_from_the_recovery_point() -> None:
    opened = new_log(TINY)
    opened.append_many(30)
    opened.flush(checkpoint=True)
    size = opened.log.size_bytes
    opened.append_many(5)

    again = opened.kill()

    assert again.report.scanned_bytes <= opened.log.size_bytes - size + 64
    assert again.log.begin_flush() is not None, "the next start need not scan that again"
    assert read_all(again.log) == expected(0, 35)


@pytest.mark.invariant("I30")
def test_recovery_restores_the_state() -> None:
    opened = new_log(TINY)
    for number in range(40):
        producer = Producer(7 + number % 2, number // 20, number // 2 % 10)
        opened.append(b"v", producer=producer, leader_epoch=number // 15, timestamp_ms=number)
        if number in (10, 25):
            opened.flush(checkpoint=True)
    opened.log.delete_records(3, high_watermark=40)
    opened.flush()

    for again in (opened.kill(), opened.cut_power(3)):
        log = again.log
        assert log.log_start_offset == 3
        assert log.log_end_offset == log.durable_end_offset == 40
        assert log.leader_epochs.entries == ((0, 3), (1, 15), (2, 30))
        assert log.size_bytes == opened.log.size_bytes
        found = log.find_time(25, high_watermark=40)
        assert found is not None
        assert found.offset == 25
        assert again.append(b"v", producer=Producer(8, 1, 9)) == Appended(39, 40, True)
        assert again.append(b"v", producer=Producer(7, 1, 5)) == Appended(30, 31, True)


@pytest.mark.parametrize("ruin", ["missing", "damaged", "empty"])
def test_without_a_checkpoint_the_whole_log_is_scanned(ruin: str) -> None:
    opened = new_log(TINY)
    for number in range(40):
        opened.append(numbered(number), producer=Producer(7, 0, number), leader_epoch=number // 15)
    opened.flush(checkpoint=True)
    disk = disk_of(image_of(opened.disk))
    match ruin:
        case "missing":
            disk.remove(CHECKPOINT)
        case "damaged":
            disk.flip_bit(CHECKPOINT, 30, 3)
        case _:
            disk.cut_file(CHECKPOINT, 0)

    again = reopen(disk, TINY)

    assert read_all(again.log) == expected(0, 40)
    assert again.report.scanned_bytes > 40 * 100
    assert again.log.leader_epochs.entries == ((0, 0), (1, 15), (2, 30))
    assert again.append(numbered(37), producer=Producer(7, 0, 37), leader_epoch=2).is_duplicate
    notes = " ".join(again.report.notes)
    assert ("the whole log is scanned instead" in notes) == (ruin != "missing")
    again.flush()
    assert again.kill().report.scanned_bytes == 0


@pytest.mark.invariant("I13")
def test_recovery_recreates_missing_footers_and_indexes() -> None:
    opened = new_log(TINY)
    opened.append_many(50)
    opened.flush(checkpoint=True)
    wanted = image_of(opened.disk)
    *sealed, last = [name for name in wanted if name.endswith(".log")]
    ruined = {name: wanted[name][:-64] for name in sealed}
    ruined |= {name: wanted[name] for name in (last, "checkpoint")}

    again = reopen(disk_of(ruined), TINY)

    assert not again.report.damage
    assert read_all(again.log) == expected(0, 50)
    made = image_of(again.disk)
    del wanted["checkpoint"], made["checkpoint"]
    assert made == wanted


def test_a_segment_keeps_its_age_after_a_restart() -> None:
    opened = new_log()
    opened.append(b"a", now_ms=NOW_MS)
    opened.flush(checkpoint=True)

    trusted = reopen(opened.disk.kill(), now_ms=NOW_MS + 1000)

    trusted.log.roll_if_old(now_ms=NOW_MS + SMALL.roll_after_ms)
    assert trusted.log.segment_count == 2


def test_a_scanned_segment_gets_the_age_of_the_scan() -> None:
    opened = new_log()
    opened.append(b"a", now_ms=NOW_MS)

    scanned = reopen(opened.disk.kill(), now_ms=NOW_MS + 1000)

    scanned.log.roll_if_old(now_ms=NOW_MS + SMALL.roll_after_ms)
    assert scanned.log.segment_count == 1
    scanned.log.roll_if_old(now_ms=NOW_MS + SMALL.roll_after_ms + 1000)
    assert scanned.log.segment_count == 2


@pytest.mark.invariant("I15")
def test_the_findings_of_a_recovery_are_durable() -> None:
    opened = new_log(TINY)
    opened.append_many(30)
    again = opened.kill()

    for seed in range(20):
        assert again.cut_power(seed).log.log_end_offset == again.log.durable_end_offset == 30


# The log start offset


def test_recovery_keeps_durable_records_when_all_older_ones_are_deleted() -> None:
    """Two starts in a row, and no checkpoint in between. Hypothesis found it."""
    opened = new_log(TINY)
    opened.append_many(5)
    opened.log.delete_records(5, high_watermark=5)
    opened.flush()
    opened.append(bytes(800))
    opened.append(numbered(6))
    assert opened.segment_bases() == [0, 5, 6]

    again = opened.kill().kill()

    assert read_all(again.log) == {5: bytes(800), 6: numbered(6)}
    assert not again.report.damage


@pytest.mark.invariant("I23")
def test_a_log_without_files_continues_at_its_log_start_offset() -> None:
    """I23."""
    opened = new_log()
    opened.append_many(20)
    opened.log.delete_records(20, high_watermark=20)
    opened.flush()

    again = reopen(disk_of({"checkpoint": image_of(opened.disk)["checkpoint"]}))

    assert (again.log.log_start_offset, again.log.log_end_offset) == (20, 20)
    assert not again.report.damage
    assert again.append(b"next").base_offset == 20


# Foreign files


@pytest.mark.invariant("I64")
def test_a_segment_of_another_partition_is_refused() -> None:
    opened = new_log()
    opened.append_many(3)
    opened.flush(checkpoint=True)
    disk = opened.disk.kill()

    with pytest.raises(DataDirectoryError, match=r"belongs to partition 3 of topic .* copied here"):
        open_log(
            DIRECTORY, SegmentHeader(TOPIC_ID, 4, 0), FileCache(disk), config=SMALL, now_ms=NOW_MS
        )
    assert disk.changes == []


def test_a_segment_under_another_name_is_refused() -> None:
    opened = new_log()
    opened.append_many(3)
    image = image_of(opened.disk)
    copied = {**image, name_of(5): image[name_of(0)]}

    with pytest.raises(DataDirectoryError, match="base offset 0; if it was copied here, move it"):
        reopen(disk_of(copied))
    assert reopen(disk_of(image)).log.log_end_offset == 3


def test_a_segment_of_a_newer_version_is_refused_and_not_torn() -> None:
    opened = new_log(TINY)
    opened.append_many(30)
    image = image_of(opened.disk)
    last = max(name for name in image if name.endswith(".log"))
    image[last] = newer(image[last], version_at=8, crc_at=60)
    image[name_of(0)] = image[name_of(0)][:200]

    disk = disk_of(image)
    with pytest.raises(DataDirectoryError, match="version 2, this tidelog reads 1"):
        open_log(DIRECTORY, OWNER, FileCache(disk), config=TINY, now_ms=NOW_MS)
    assert image_of(disk) == image


def test_a_checkpoint_of_a_newer_version_is_refused() -> None:
    opened = new_log()
    opened.append_many(3)
    opened.flush(checkpoint=True)
    image = image_of(opened.disk)
    data = image["checkpoint"]
    prefix, body = data[:4] + struct.pack("<H", 2) + data[6:12], data[16:]
    crc = struct.pack("<I", crc32c(body, crc32c(prefix)))

    with pytest.raises(DataDirectoryError, match="checkpoint has format version 2"):
        reopen(disk_of({**image, "checkpoint": prefix + crc + body}))


def test_recovery_rewrites_a_lost_header() -> None:
    opened = new_log()
    opened.append_many(3, flush_every=1)
    image = image_of(opened.disk)
    wanted = image[name_of(0)]

    again = reopen(disk_of({**image, name_of(0): bytes(64) + wanted[64:]}))

    assert read_all(again.log) == expected(0, 3)
    assert again.disk.durable_bytes(again.path()) == wanted


def test_recovery_raises_disk_errors() -> None:
    opened = new_log()
    opened.append_many(3)
    disk = opened.disk.kill()
    disk.fail("read_at")

    with pytest.raises(OSError, match="Input/output error"):
        reopen(disk)

    assert disk.changes == []
    assert read_all(reopen(disk.power_cut(Random(0))).log).items() <= expected(0, 3).items()
