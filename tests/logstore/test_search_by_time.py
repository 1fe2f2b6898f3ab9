"""A search by time finds the first batch, also if timestamps are not in order."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.logstore.logs import (
    CHECKPOINT,
    NOW_MS,
    Opened,
    disk_of,
    expected,
    image_of,
    new_log,
    numbered,
    read_all,
    records_in,
    reopen,
)
from tidelog.logstore.checkpoint import LogCheckpoint, read_small_file, write_small_file
from tidelog.logstore.config import LogConfig
from tidelog.logstore.damage import DamagedRange
from tidelog.wire.batch.record_batch import parse_header
from tidelog.wire.batch.sparse_batch import encode_empty
from tidelog.wire.errors import CorruptRecordError


def found_offset(opened: Opened, timestamp_ms: int, *, high_watermark: int) -> int | None:
    """Return the offset to read from; the batch there is checked to be readable."""
    found = opened.log.find_time(timestamp_ms, high_watermark=high_watermark)
    if found is None:
        return None
    assert found.offset in records_in(found.load().read())
    return found.offset


@pytest.mark.invariant("I24")
@settings(max_examples=40)
@given(
    timestamps=st.lists(st.integers(1, 30), min_size=1, max_size=40),
    timestamp_ms=st.integers(0, 31),
    start=st.integers(0, 40),
    high_watermark=st.integers(0, 40),
)
def test_a_search_by_time_agrees_with_a_full_scan(
    timestamps: list[int], timestamp_ms: int, start: int, *, high_watermark: int
) -> None:
    opened = new_log(LogConfig(segment_bytes=1500, index_interval_bytes=300))
    for timestamp in timestamps:
        opened.append(b"." * 20, timestamp_ms=timestamp)
    high_watermark = min(high_watermark, len(timestamps))
    start = min(start, high_watermark)
    opened.log.delete_records(start, high_watermark=high_watermark)

    found = found_offset(opened, timestamp_ms, high_watermark=high_watermark)

    young_enough = (
        offset for offset in range(start, high_watermark) if timestamps[offset] >= timestamp_ms
    )
    assert found == next(young_enough, None)


def test_a_batch_without_records_is_passed_over() -> None:
    opened = new_log()
    gone = encode_empty(base_offset=0, end_offset=500, leader_epoch=0)
    header = parse_header(gone)
    assert header is not None
    opened.log.append(memoryview(gone), header, leader_epoch=0, now_ms=NOW_MS)
    opened.append(b"left", timestamp_ms=10)

    assert found_offset(opened, 0, high_watermark=501) == 500
    assert found_offset(opened, 11, high_watermark=501) is None


def test_a_batch_that_is_committed_only_in_part_is_not_found() -> None:
    opened = new_log()
    opened.append(b"old", timestamp_ms=10)
    opened.append(b"young", b"too", timestamp_ms=20)

    assert found_offset(opened, 20, high_watermark=2) is None
    assert found_offset(opened, 20, high_watermark=3) == 1


def test_a_start_of_the_log_inside_of_a_batch_is_where_reading_begins() -> None:
    opened = new_log()
    opened.append(b"one", b"two", b"three", timestamp_ms=10)
    opened.log.delete_records(2, high_watermark=3)

    assert found_offset(opened, 5, high_watermark=3) == 2


def test_a_search_by_time_is_right_without_a_readable_index() -> None:
    """An index of another version in an otherwise valid checkpoint."""
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
        assert found_offset(again, NOW_MS + ahead, high_watermark=30) == ahead


def test_a_read_from_a_time_on_finds_damage_of_unknown_time() -> None:
    opened = new_log(LogConfig(segment_bytes=1500, index_interval_bytes=300))
    for number in range(50):
        opened.append(numbered(number), timestamp_ms=NOW_MS + number)
    opened.flush(checkpoint=True)
    _, second, third, *_ = opened.segment_bases()
    name = opened.path(second).rpartition("/")[2]

    log = reopen(disk_of({**image_of(opened.disk), name: b""}), opened.config).log

    assert log.damage == (DamagedRange(second, third),)
    assert log.offset_before(NOW_MS + second) == second
    assert log.offset_before(NOW_MS + third) == second
    assert second < log.offset_before(NOW_MS + 49) < 50


def damaged_log() -> tuple[Opened, int, int]:
    """Return a log of records each a millisecond younger; its second segment is lost."""
    opened = new_log(LogConfig(segment_bytes=1500, index_interval_bytes=300))
    for number in range(50):
        opened.append(numbered(number), timestamp_ms=NOW_MS + number)
    opened.flush(checkpoint=True)
    _, second, third, *_ = opened.segment_bases()
    name = opened.path(second).rpartition("/")[2]
    return reopen(disk_of({**image_of(opened.disk), name: b""}), opened.config), second, third


@pytest.mark.parametrize("is_known", [True, False])
def test_a_search_by_time_does_not_skip_damage(*, is_known: bool) -> None:
    opened, second, third = damaged_log()
    if not is_known:
        opened = new_log(LogConfig(segment_bytes=1500, index_interval_bytes=300))
        for number in range(50):
            opened.append(numbered(number), timestamp_ms=NOW_MS + number)
        opened.flush(checkpoint=True)
        opened.disk.damage(opened.path(second), 64, bytes(1000))

    assert found_offset(opened, NOW_MS + second - 1, high_watermark=50) == second - 1
    for number in (second, third - 1) if is_known else (second, second + 1):
        with pytest.raises(CorruptRecordError) as caught:
            found_offset(opened, NOW_MS + number, high_watermark=50)
        assert second <= (caught.value.offset or 0) <= number < (caught.value.next_offset or 0)
    assert found_offset(opened, NOW_MS + 49, high_watermark=50) == 49


def test_damage_outside_of_the_readable_range_does_not_fail_a_search_by_time() -> None:
    opened, second, third = damaged_log()

    assert found_offset(opened, NOW_MS + second, high_watermark=second) is None
    opened.log.delete_records(third, high_watermark=50)
    assert found_offset(opened, NOW_MS + second, high_watermark=50) == third


def test_damage_at_the_end_may_match_any_time() -> None:
    opened = new_log()
    for number in range(10):
        opened.append(numbered(number), timestamp_ms=NOW_MS + number)
    opened.flush(checkpoint=True)
    size = len(opened.disk.visible_bytes(opened.path()))
    opened.disk.damage(opened.path(), size - 100, bytes(100))
    opened = opened.kill()
    assert found_offset(opened, NOW_MS + 20, high_watermark=10) is None, "it is not known yet"
    part = opened.log.read(9, max_bytes=1, high_watermark=10)
    assert part is not None
    with pytest.raises(CorruptRecordError) as caught:
        part.load()
    opened.log.note_damage(caught.value)

    with pytest.raises(CorruptRecordError):
        found_offset(opened, NOW_MS + 20, high_watermark=10)
