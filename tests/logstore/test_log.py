"""A log takes batches, gives them back, and keeps its word when the disk does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.config import LogConfig
from logstore.log import LogStatus
from logstore.slice import LogSlice
from tests.logstore.logs import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    Opened,
    Producer,
    batch_of,
    expected,
    image_of,
    new_log,
    numbered,
    read_all,
    records_in,
    run,
)
from wire.errors import (
    DiskFullError,
    LogOfflineError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from wire.record_batch import parse_header


def read(opened: Opened, offset: int, *, bytes_max: int = 1000, below: int | None = None) -> bytes:
    """Return what a read gives, below a high watermark."""
    return part_of(opened, offset, bytes_max=bytes_max, below=below).read()


def part_of(
    opened: Opened, offset: int, *, bytes_max: int = 1000, below: int | None = None
) -> LogSlice:
    high_watermark = opened.log.log_end_offset if below is None else below
    part = opened.log.read(offset, bytes_max=bytes_max, high_watermark=high_watermark)
    assert part is not None
    return part if part.is_ready() else part.load()


def status(opened: Opened) -> LogStatus:
    """Return it anew: it changes behind the back of a type checker."""
    return opened.log.status


def used_bytes(opened: Opened) -> int:
    return sum(len(data) for data in image_of(opened.disk).values())


def test_a_batch_larger_than_the_limit_is_refused_before_a_byte_is_written() -> None:
    opened = new_log()
    changes = opened.disk.changes

    with pytest.raises(RecordTooLargeError, match="batch_bytes_max") as caught:
        opened.append(bytes(SMALL.batch_bytes_max))

    assert caught.value.detail("limit_bytes") == SMALL.batch_bytes_max
    assert opened.log.log_end_offset == 0
    assert opened.disk.changes == changes


def test_a_stored_batch_says_where_it_is_who_led_and_what_was_durable_then() -> None:
    opened = new_log()
    opened.append(b"one", b"two", leader_epoch=4)
    opened.flush()
    durable_position = opened.disk.open(opened.path()).size()
    opened.append(b"three", leader_epoch=4)

    assert opened.append(b"four", leader_epoch=6).base_offset == 3

    data = read(opened, 3)
    header = parse_header(data, len(data) - len(batch_of([b"four"])))
    assert header is not None
    assert (header.base_offset, header.leader_epoch) == (3, 6)
    assert header.durable_position == durable_position
    assert opened.log.leader_epochs.entries == ((4, 0), (6, 3))


def test_a_retry_gets_the_offset_of_the_first_try_and_writes_nothing() -> None:
    opened = new_log()
    opened.append(b"one", b"two", producer=Producer(7))
    opened.append(b"three", producer=Producer(7, sequence=2))
    changes = opened.disk.changes

    again = opened.append(b"one", b"two", producer=Producer(7))

    assert (again.base_offset, again.next_offset, again.is_duplicate) == (0, 2, True)
    assert opened.disk.changes == changes
    opened.log.expire_producers(now_ms=NOW_MS + SMALL.producer_expiry_ms + 1)
    assert not opened.append(b"one", producer=Producer(7)).is_duplicate


def test_a_flush_makes_durable_what_was_appended_before_it_began() -> None:
    opened = new_log()
    opened.append_many(3)
    flush = opened.log.begin_flush()
    assert flush is not None
    opened.append_many(2)
    assert opened.log.durable_end_offset == 0

    run(opened.log, flush)

    assert (opened.log.durable_end_offset, opened.log.log_end_offset) == (3, 5)
    opened.flush()
    assert opened.log.durable_end_offset == 5
    assert opened.log.begin_flush() is None


@pytest.mark.parametrize("bytes_max", [0, 1, 200, 511, 512, 1000, 5000])
def test_a_read_gives_whole_batches_and_one_at_least(bytes_max: int) -> None:
    opened = new_log()
    opened.append_many(60, size=70)
    for offset in range(60):
        part = part_of(opened, offset, bytes_max=bytes_max)

        assert offset in records_in(part.read())
        assert part.length <= max(
            bytes_max, SMALL.index_interval_bytes + len(batch_of([b"." * 70]))
        )
        assert part.has_more == (max(records_in(part.read())) < 59)


def test_a_read_ends_below_the_high_watermark_and_never_in_a_batch() -> None:
    opened = new_log()
    for number in range(20):
        opened.append(b"%d" % number, b"%d" % number)

    for high_watermark in range(1, 40):
        whole = high_watermark - high_watermark % 2
        found = {at for at in range(40) if at < whole}
        assert set(read_all(opened.log, high_watermark=whole)) == found
        assert opened.log.read(whole, bytes_max=1000, high_watermark=high_watermark) is None
        if whole:
            part = part_of(opened, 0, bytes_max=1 << 20, below=high_watermark)
            assert set(records_in(part.read())) == found


def test_only_offsets_between_start_and_end_can_be_asked_for() -> None:
    opened = new_log()
    opened.append_many(10)
    opened.log.delete_records(4, high_watermark=10)

    for offset in 3, 11:
        with pytest.raises(OffsetOutOfRangeError, match="4 to 10") as caught:
            opened.log.read(offset, bytes_max=1000, high_watermark=10)
        assert caught.value.detail("log_start_offset") == 4
        assert caught.value.detail("log_end_offset") == 10
    assert opened.log.read(10, bytes_max=1000, high_watermark=10) is None


def test_records_are_deleted_up_to_the_high_watermark_and_not_beyond() -> None:
    opened = new_log()
    opened.append_many(10)

    with pytest.raises(OffsetOutOfRangeError, match="only offsets below 6"):
        opened.log.delete_records(7, high_watermark=6)
    assert opened.log.log_start_offset == 0
    opened.log.delete_records(6, high_watermark=6)
    opened.log.delete_records(2, high_watermark=6)
    opened.flush()

    assert opened.log.log_start_offset == 6
    assert read_all(opened.kill().log) == expected(6, 10)


@given(
    timestamps=st.lists(st.integers(1, 30), min_size=1, max_size=60),
    timestamp_ms=st.integers(0, 31),
    start=st.integers(0, 60),
    high_watermark=st.integers(0, 60),
)
def test_a_time_is_found_though_timestamps_jump_back_and_forth(
    timestamps: list[int], timestamp_ms: int, start: int, high_watermark: int
) -> None:
    opened = new_log(LogConfig(segment_bytes=1500, index_interval_bytes=300))
    for timestamp in timestamps:
        opened.append(b"." * 20, timestamp_ms=timestamp)
    high_watermark = min(high_watermark, len(timestamps))
    opened.log.delete_records(min(start, high_watermark), high_watermark=high_watermark)

    found = opened.log.find_time(timestamp_ms, high_watermark=high_watermark)

    young_enough = [
        offset
        for offset, timestamp in enumerate(timestamps[:high_watermark])
        if offset >= start and timestamp >= timestamp_ms
    ]
    assert (found and found.offset) == (young_enough[0] if young_enough else None)
    assert found is None or list(records_in(found.load().read())) == [found.offset]


def test_a_segment_is_rolled_when_its_first_record_is_old_enough() -> None:
    opened = new_log()
    opened.log.roll_if_old(now_ms=NOW_MS + SMALL.roll_after_ms)
    assert opened.log.segment_count == 1
    opened.append(b"first", now_ms=NOW_MS)
    opened.append(b"second", now_ms=NOW_MS + 1000)

    opened.log.roll_if_old(now_ms=NOW_MS + SMALL.roll_after_ms - 1)
    assert opened.log.segment_count == 1
    opened.log.roll_if_old(now_ms=NOW_MS + SMALL.roll_after_ms)

    assert opened.segment_bases() == [0, 2]
    assert set(read_all(opened.log)) == {0, 1}


def test_a_reader_finishes_with_a_segment_that_retention_removes() -> None:
    opened = new_log(LogConfig(segment_bytes=2000, index_interval_bytes=512, retention_bytes=3000))
    opened.append_many(60)
    opened.flush(checkpoint=True)
    part = part_of(opened, 0)

    for segment in opened.log.apply_retention(high_watermark=60, now_ms=NOW_MS):
        segment.remove_files()

    start = opened.log.log_start_offset
    assert start > 0
    assert opened.segment_bases()[0] == start
    assert records_in(part.read())[0] == numbered(0)
    with pytest.raises(OffsetOutOfRangeError):
        opened.log.read(0, bytes_max=1000, high_watermark=60)
    assert read_all(opened.log) == expected(start, 60)


def test_retention_waits_for_the_high_watermark_and_for_a_checkpoint() -> None:
    opened = new_log(LogConfig(segment_bytes=2000, index_interval_bytes=512, retention_bytes=0))
    opened.append_many(60)
    assert opened.log.apply_retention(high_watermark=60, now_ms=NOW_MS) == []

    opened.flush(checkpoint=True)

    assert opened.log.apply_retention(high_watermark=1, now_ms=NOW_MS) == []
    assert opened.log.apply_retention(high_watermark=60, now_ms=NOW_MS) != []
    assert opened.log.segment_count == 1


def test_a_disk_that_runs_full_in_mid_append_makes_the_log_read_only_until_there_is_room() -> None:
    opened = new_log()
    opened.append_many(3)
    size = opened.disk.open(opened.path()).size()
    opened.disk.capacity_bytes = used_bytes(opened) + 50

    with pytest.raises(DiskFullError):
        opened.append(numbered(3))

    assert status(opened) is LogStatus.READ_ONLY
    assert opened.disk.open(opened.path()).size() == size, "nothing is left of the batch"
    assert read_all(opened.log) == expected(0, 3)
    opened.disk.capacity_bytes += 1000
    with pytest.raises(DiskFullError, match="read-only until there is room"):
        opened.append(numbered(3))
    opened.disk.capacity_bytes = None
    opened.append_many(2)
    assert status(opened) is LogStatus.ONLINE
    assert read_all(opened.kill().log) == expected(0, 5)


@pytest.mark.parametrize("room", [0, 1, 63, 64, 65, 127, 128, 200, 300])
def test_a_disk_that_runs_full_at_a_roll_loses_nothing_and_the_log_comes_back(room: int) -> None:
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=512))
    opened.append_many(7)
    assert opened.log.segment_count == 1
    opened.disk.capacity_bytes = used_bytes(opened) + room
    with pytest.raises(DiskFullError):
        opened.append_many(7)
    end = opened.log.log_end_offset

    assert status(opened) is LogStatus.READ_ONLY
    assert read_all(opened.log) == expected(0, end)
    opened.disk.capacity_bytes = None
    opened.log.look_for_room()
    assert status(opened) is LogStatus.ONLINE
    opened.append_many(10)
    assert opened.log.segment_count > 1
    opened.flush()
    again = opened.kill()
    assert read_all(again.log) == expected(0, end + 10)
    assert not again.report.damage


def test_a_failed_fsync_takes_the_log_offline_and_is_never_tried_again() -> None:
    opened = new_log()
    opened.append_many(3)
    opened.flush()
    opened.append_many(2)
    opened.disk.fail("sync")
    with pytest.raises(OSError, match="Input/output error"):
        opened.flush()
    calls = opened.disk.changes

    assert opened.log.begin_flush() is None

    assert status(opened) is LogStatus.OFFLINE
    assert opened.log.durable_end_offset == 3
    with pytest.raises(LogOfflineError, match=f"{DIRECTORY} is offline: fsync failed"):
        opened.append(b"one more")
    with pytest.raises(LogOfflineError):
        opened.log.read(0, bytes_max=1000, high_watermark=3)
    with pytest.raises(LogOfflineError):
        opened.log.truncate(0)
    assert opened.disk.changes == calls
    assert read_all(opened.kill().log).items() >= expected(0, 3).items()


@pytest.mark.parametrize("operation", ["write_at", "truncate"])
def test_a_disk_that_fails_an_append_takes_the_log_offline(operation: str) -> None:
    opened = new_log()
    opened.append_many(3)
    opened.disk.fail(operation)
    if operation == "truncate":  # There is no room, and then not even the rest can be removed.
        opened.disk.capacity_bytes = used_bytes(opened)

    with pytest.raises(LogOfflineError, match="writing failed"):
        opened.append_many(1)

    assert status(opened) is LogStatus.OFFLINE
    assert opened.log.begin_flush() is None


def test_a_cut_removes_what_reaches_above_it_and_its_offsets_are_given_again() -> None:
    opened = new_log()
    opened.append_many(40, size=70)
    opened.append(b"forty", b"forty-one", leader_epoch=1)
    opened.log.delete_records(5, high_watermark=42)

    opened.log.truncate(41)

    assert opened.log.log_end_offset == opened.log.durable_end_offset == 40
    assert opened.log.leader_epochs.latest == 0
    opened.log.truncate(3)
    assert opened.log.log_start_offset == opened.log.log_end_offset == 3
    assert opened.append(b"three", leader_epoch=2).base_offset == 3
    assert read_all(opened.kill().log) == {3: b"three"}


def test_a_closed_log_is_of_no_further_use() -> None:
    opened = new_log()
    opened.append_many(1)

    opened.log.close()

    assert opened.log.begin_flush() is None
    assert opened.log.apply_retention(high_watermark=1, now_ms=NOW_MS) == []
    with pytest.raises(LogOfflineError, match="was closed"):
        opened.log.read(0, bytes_max=1, high_watermark=1)
