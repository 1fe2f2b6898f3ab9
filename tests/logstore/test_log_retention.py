"""Deletion at the start of a log: by age, by size, and on request."""

import pytest

from tests.logstore.logs import (
    NOW_MS,
    Opened,
    Producer,
    disk_of,
    expected,
    image_of,
    new_log,
    numbered,
    read_all,
    records_in,
    reopen,
)
from tidelog.logstore.config import KiB, LogConfig, MiB
from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.log import LogStatus
from tidelog.wire.errors import OffsetOutOfRangeError, PartitionFullError

DAY_MS = 24 * 3600 * 1000


def read(opened: Opened, offset: int, *, max_bytes: int = 500, high_watermark: int) -> list[int]:
    part = opened.log.read(offset, max_bytes=max_bytes, high_watermark=high_watermark)
    assert part is not None
    return list(records_in(part.read()))


def is_idle(opened: Opened) -> bool:
    return opened.log.is_idle


# Append


def test_a_log_is_idle_while_time_changes_nothing_about_it() -> None:
    opened = new_log(LogConfig(segment_ms=DAY_MS, retention_ms=DAY_MS))
    assert is_idle(opened)

    opened.append(b"a", now_ms=NOW_MS, producer=Producer(1000))
    assert not is_idle(opened), "its segment must be rolled some day"
    opened.flush()
    opened.log.roll_if_old(now_ms=NOW_MS + DAY_MS)
    assert not is_idle(opened), "a segment must be deleted some day"
    opened.flush()
    opened.log.apply_retention(high_watermark=1, now_ms=NOW_MS + 9 * DAY_MS).run()
    assert opened.log.segment_count == 1
    assert not is_idle(opened), "a producer must expire some day"
    opened.log.producers.expire(before_ms=NOW_MS * 2, is_kept=lambda _: False)
    assert is_idle(opened)
    opened.flush()
    assert is_idle(opened.kill())

    opened.log.fail("the disk failed")
    assert not is_idle(opened), "the failure must be reported"


def test_an_old_segment_is_rolled_so_that_retention_can_reach_it() -> None:
    opened = new_log(LogConfig(segment_ms=DAY_MS, retention_ms=None))
    opened.log.roll_if_old(now_ms=NOW_MS * 2)
    assert opened.log.segment_count == 1, "an empty segment is never old"
    opened.append(b"a", now_ms=NOW_MS)

    opened.log.roll_if_old(now_ms=NOW_MS + DAY_MS - 1)
    assert opened.log.segment_count == 1
    opened.log.roll_if_old(now_ms=NOW_MS + DAY_MS)
    assert opened.log.segment_count == 2


def test_a_fully_truncated_log_is_not_rolled() -> None:
    opened = new_log()
    opened.append(b"a")
    opened.log.truncate(0)

    opened.log.roll_if_old(now_ms=NOW_MS * 2)

    assert opened.log.segment_count == 1
    opened.append(b"b")
    assert read_all(opened.kill().log) == {0: b"b"}


def retained(opened: Opened, *, high_watermark: int, now_ms: int = NOW_MS) -> int:
    """Apply retention; return the new start of the log."""
    opened.log.apply_retention(high_watermark=high_watermark, now_ms=now_ms).run()
    return opened.log.log_start_offset


@pytest.mark.invariant("I20")
def test_retention_by_size_deletes_whole_segments_below_the_high_watermark() -> None:
    """I20."""
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_bytes=1500))
    opened.append_many(50)
    opened.flush()
    bases = opened.segment_bases()

    assert retained(opened, high_watermark=bases[2] - 1) == bases[1]
    assert retained(opened, high_watermark=50) in bases
    assert opened.log.size_bytes >= 1500
    assert opened.segment_bases()[0] == opened.log.log_start_offset
    assert read_all(opened.log) == expected(opened.log.log_start_offset, 50)


def fill(opened: Opened, mib: int) -> None:
    """Append records of 32 KiB."""
    opened.append_many(mib * 32, size=32 * KiB)
    opened.flush()


@pytest.mark.statement("b102")
def test_a_log_exceeds_its_retained_bytes_by_less_than_one_segment() -> None:
    config = LogConfig(retention_bytes=MiB)
    opened = new_log(config)
    fill(opened, 4)

    retained(opened, high_watermark=opened.log.log_end_offset)

    assert MiB <= opened.log.size_bytes < MiB + config.roll_bytes == MiB + 256 * KiB


def test_a_lower_limit_on_bytes_reaches_the_records_in_the_active_segment() -> None:
    opened = new_log(LogConfig(retention_bytes=100 * MiB))
    fill(opened, 4)
    opened.log.roll_if_old(now_ms=NOW_MS)
    assert opened.log.segment_count == 1

    opened.log.config = LogConfig(retention_bytes=MiB)
    opened.log.roll_if_old(now_ms=NOW_MS)
    opened.flush()

    assert retained(opened, high_watermark=128) == 0, "no segment is surplus as a whole"
    fill(opened, 2)
    assert retained(opened, high_watermark=192) >= 128
    assert opened.log.size_bytes < MiB + 256 * KiB


def test_retention_by_age_looks_at_the_newest_record() -> None:
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=DAY_MS))
    for number in range(50):
        opened.append(numbered(number), timestamp_ms=NOW_MS - 50 + number)
    opened.flush()
    bases = opened.segment_bases()
    too_old_ms = NOW_MS - 50 + bases[1] + DAY_MS

    assert retained(opened, high_watermark=50, now_ms=too_old_ms - 1) == 0
    assert retained(opened, high_watermark=50, now_ms=too_old_ms) == bases[1]
    assert retained(opened, high_watermark=50, now_ms=NOW_MS + 9 * DAY_MS) == bases[-1]


def with_a_lost_segment(number: int, *, tail: int) -> tuple[Opened, list[int]]:
    """Return a log without the records of one segment, and the base offsets of its segments.

    Each record is a millisecond younger than the one before, the last one of `NOW_MS`; `tail` of
    them came after the last roll.
    """
    config = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=DAY_MS)
    opened = new_log(config)
    for offset in range(30):
        if offset == 30 - tail:
            opened.log.roll_if_old(now_ms=NOW_MS, force=True)
        opened.append(numbered(offset), timestamp_ms=NOW_MS - 29 + offset)
    if not tail:
        opened.log.roll_if_old(now_ms=NOW_MS, force=True)
    opened.flush(checkpoint=True)
    bases = opened.segment_bases()
    name = opened.path(bases[number]).rpartition("/")[2]
    opened = reopen(disk_of({**image_of(opened.disk), name: b""}), config)
    end = [*bases, 30][bases.index(bases[number]) + 1]
    assert opened.log.damage == (DamagedRange(bases[number], end),)
    return opened, bases


def test_a_damaged_segment_counts_as_new_as_the_next_one() -> None:
    """Otherwise a replica deletes records that others can repair, and theirs too (seed 8300058)."""
    opened, bases = with_a_lost_segment(0, tail=1)
    expiry_of_next_ms = NOW_MS - 29 + bases[2] + DAY_MS

    assert retained(opened, high_watermark=30, now_ms=expiry_of_next_ms - 1) == 0
    assert retained(opened, high_watermark=30, now_ms=expiry_of_next_ms) == bases[2]


@pytest.mark.parametrize("tail", [0, 1])
def test_damage_before_the_active_segment_counts_as_new_as_that(tail: int) -> None:
    """Without a segment after it, it may be of any age."""
    opened, bases = with_a_lost_segment(-2, tail=tail)
    expiry_ms = NOW_MS + DAY_MS + 1

    assert retained(opened, high_watermark=30, now_ms=expiry_ms - 1) == bases[-2]
    assert retained(opened, high_watermark=30, now_ms=expiry_ms) == bases[-1 if tail else -2]


@pytest.mark.invariant("I22")
def test_a_record_from_the_far_future_does_not_pin_its_segment() -> None:
    """I22."""
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=DAY_MS))
    opened.append(numbered(0), timestamp_ms=1 << 60)
    opened.append_many(49)
    opened.flush()
    bases = opened.segment_bases()

    assert retained(opened, high_watermark=50, now_ms=NOW_MS + DAY_MS) == 0
    assert retained(opened, high_watermark=50, now_ms=NOW_MS + DAY_MS + 1) == bases[-1]


@pytest.mark.invariant("I20")
def test_retention_waits_for_a_checkpoint_with_the_next_segment() -> None:
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_bytes=0))
    opened.append_many(50)

    assert retained(opened, high_watermark=50) == 0
    opened.flush()
    assert retained(opened, high_watermark=50) == opened.segment_bases()[-1]


@pytest.mark.invariant("I20")
def test_deleted_segments_stay_deleted_after_a_restart() -> None:
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_bytes=0))
    opened.append_many(50)
    opened.flush()
    start = retained(opened, high_watermark=50)
    opened.flush()

    for seed in range(10):
        assert opened.cut_power(seed).log.log_start_offset == start


def test_deleted_records_cannot_be_read_although_their_bytes_are_there() -> None:
    opened = new_log()
    opened.append_many(20)

    opened.log.delete_records(7, high_watermark=20)

    assert opened.log.log_start_offset == 7
    assert read_all(opened.log) == expected(7, 20)
    opened.log.delete_records(3, high_watermark=20)
    assert opened.log.log_start_offset == 7


@pytest.mark.invariant("I19")
def test_only_committed_records_can_be_deleted() -> None:
    """I19."""
    opened = new_log()
    opened.append_many(20)

    with pytest.raises(OffsetOutOfRangeError, match="only offsets below 10 are") as caught:
        opened.log.delete_records(11, high_watermark=10)

    assert caught.value.log_end_offset == 10
    opened.log.delete_records(10, high_watermark=10)
    assert opened.log.log_start_offset == 10


def test_a_deletion_is_durable_after_a_flush() -> None:
    opened = new_log()
    opened.append_many(20)

    opened.log.delete_records(7, high_watermark=20)
    is_due_at_first = opened.log.is_checkpoint_due
    opened.flush()

    assert (is_due_at_first, opened.log.is_checkpoint_due) == (True, False)
    assert opened.cut_power(1).log.log_start_offset == 7


def test_a_segment_with_only_deleted_records_is_deleted_without_a_limit() -> None:
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=None))
    opened.append_many(50)
    opened.log.delete_records(50, high_watermark=50)
    opened.flush()

    retained(opened, high_watermark=50)

    assert len(opened.segment_bases()) == 1
    assert opened.log.log_start_offset == 50


# Truncation


# A hard limit


def full_log() -> Opened:
    """Return a full log."""
    opened = new_log(
        LogConfig(segment_bytes=1000, index_interval_bytes=100, max_partition_bytes=2500)
    )
    with pytest.raises(PartitionFullError):
        opened.append_many(100)
    opened.flush(checkpoint=True)
    return opened


@pytest.mark.invariant("I25")
def test_of_a_batch_beyond_the_limit_not_a_byte_is_written() -> None:
    opened = full_log()
    before = image_of(opened.disk)

    with pytest.raises(PartitionFullError, match="max_partition_bytes"):
        opened.append(numbered(opened.log.log_end_offset))

    assert 2000 < opened.log.size_bytes <= 2500
    assert image_of(opened.disk) == before
    assert opened.log.status is LogStatus.ONLINE


def test_there_is_room_again_when_segments_were_deleted() -> None:
    opened = full_log()
    end = opened.log.log_end_offset

    opened.log.delete_records(end // 2, high_watermark=end)
    retained(opened, high_watermark=end)
    opened.append_many(1)

    assert opened.log.log_end_offset == end + 1


def test_a_changed_max_partition_bytes_holds_at_once() -> None:
    opened = full_log()

    opened.log.config = LogConfig(segment_bytes=1000, index_interval_bytes=100)

    opened.append_many(10)


def test_a_duplicate_is_accepted_by_a_full_partition() -> None:
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100))
    first = opened.append(b"value", producer=Producer(7, 0, 0))
    opened.log.config = LogConfig(
        segment_bytes=1000, index_interval_bytes=100, max_partition_bytes=1
    )

    again = opened.append(b"value", producer=Producer(7, 0, 0))

    assert (again.base_offset, again.is_duplicate) == (first.base_offset, True)
    with pytest.raises(PartitionFullError):
        opened.append(b"value", producer=Producer(7, 0, 1))
