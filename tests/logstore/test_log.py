"""A partition's log: append, read, roll, truncate, delete, and find by time."""

import pytest

from tests.logstore.logs import (
    NOW_MS,
    SMALL,
    Opened,
    Producer,
    batch_bounds,
    expected,
    new_log,
    numbered,
    read_all,
    records_in,
    run,
    stored,
)
from tidelog.logstore.config import LogConfig
from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.log import Appended, LogStatus
from tidelog.logstore.producer_state import ProducerPosition
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE
from tidelog.wire.batch.record_batch import parse_header
from tidelog.wire.errors import (
    CorruptRecordError,
    DuplicateSequenceError,
    FencedProducerError,
    LogOfflineError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
)

DAY_MS = 24 * 3600 * 1000


def file_bytes(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    return file.read_at(0, file.size())


def read(opened: Opened, offset: int, *, max_bytes: int = 500, high_watermark: int) -> list[int]:
    part = opened.log.read(offset, max_bytes=max_bytes, high_watermark=high_watermark)
    assert part is not None
    return list(records_in(part.read()))


# Append


def test_an_empty_log_begins_at_0() -> None:
    log = new_log().log

    assert (log.log_start_offset, log.durable_end_offset, log.log_end_offset) == (0, 0, 0)
    assert log.status is LogStatus.ONLINE
    assert log.segment_count == 1
    assert log.read(0, max_bytes=1, high_watermark=0) is None


def test_offsets_count_records() -> None:
    opened = new_log()

    assert opened.append(b"a", b"b", b"c") == Appended(0, 3, False)
    assert opened.append(b"d") == Appended(3, 4, False)
    assert read_all(opened.log) == {0: b"a", 1: b"b", 2: b"c", 3: b"d"}


def test_the_leader_stamps_offset_epoch_and_durable_position() -> None:
    opened = new_log()
    opened.append(b"a", leader_epoch=3)
    opened.append(b"b", leader_epoch=3)
    opened.flush()
    opened.append(b"c", leader_epoch=4)

    data = file_bytes(opened.disk, opened.path())

    bounds = batch_bounds(data)
    headers = [parse_header(data, bound) for bound in bounds[:-1]]
    stamps = [
        (header.base_offset, header.leader_epoch, header.durable_position)
        for header in headers
        if header is not None
    ]
    assert stamps == [(0, 3, 64), (1, 3, 64), (2, 4, bounds[2])]
    assert opened.log.leader_epochs.entries == ((3, 0), (4, 2))


def test_a_forced_roll_seals_a_new_segment_but_never_an_empty_one() -> None:
    opened = new_log()
    opened.append(b"a")

    opened.log.roll_if_old(now_ms=NOW_MS)
    assert opened.log.segment_count == 1
    opened.log.roll_if_old(now_ms=NOW_MS, force=True)
    opened.log.roll_if_old(now_ms=NOW_MS, force=True)

    assert opened.log.segment_count == 2
    assert list(read_all(opened.log).values()) == [b"a"]


def test_batches_of_a_new_segment_have_durable_position_0_before_its_first_flush() -> None:
    opened = new_log()
    opened.append(b"a")
    opened.flush()
    opened.log.roll_if_old(now_ms=NOW_MS * 2)
    opened.append(b"b")
    opened.flush()
    opened.append(b"c")

    data = file_bytes(opened.disk, opened.path(1))

    bounds = batch_bounds(data)
    headers = [parse_header(data, bound) for bound in bounds[:-1]]
    assert [header.durable_position for header in headers if header] == [0, bounds[1]]


@pytest.mark.invariant("I4")
@pytest.mark.statement("b63")
def test_a_batch_above_the_limit_is_refused_before_a_byte_is_written() -> None:
    """I4."""
    opened = new_log()
    opened.append(b"a")
    before = opened.disk.calls.copy()

    with pytest.raises(RecordTooLargeError, match="limit of 2048 bytes") as caught:
        opened.append(bytes(2048))

    assert (caught.value.size_bytes, caught.value.limit_bytes) == (2145, 2048)
    assert opened.disk.calls == before
    assert opened.log.log_end_offset == 1


@pytest.mark.statement("b63")
def test_the_limit_of_a_batch_is_exact() -> None:
    opened = new_log()
    opened.append(bytes(2048 - 97))

    with pytest.raises(RecordTooLargeError, match="of 2049 bytes"):
        opened.append(bytes(2048 - 96))


@pytest.mark.invariant("I4")
def test_a_batch_larger_than_a_segment_has_one_of_its_own() -> None:
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100))
    opened.append(b"a")
    opened.append(bytes(5000))
    opened.append(b"b")

    assert opened.segment_bases() == [0, 1, 2]
    assert read_all(opened.log) == {0: b"a", 1: bytes(5000), 2: b"b"}


@pytest.mark.invariant("I5")
def test_a_batch_never_spans_two_segments() -> None:
    """I5."""
    opened = new_log()
    opened.append_many(100)

    bases = opened.segment_bases()
    assert len(bases) > 2
    assert all(
        len(file_bytes(opened.disk, opened.path(base))) <= SMALL.segment_bytes + 64
        for base in bases
    )
    assert read_all(opened.log) == expected(0, 100)


def test_a_change_of_the_limits_holds_from_the_next_append_on() -> None:
    opened = new_log()
    opened.log.config = LogConfig(max_message_bytes=100)

    with pytest.raises(RecordTooLargeError):
        opened.append(bytes(50))


def test_an_append_of_an_older_epoch_is_an_assertion_error() -> None:
    opened = new_log()
    opened.append(b"a", leader_epoch=5)
    before = opened.disk.calls.copy()

    with pytest.raises(AssertionError, match="epoch 4 is over"):
        opened.append(b"b", leader_epoch=4)

    assert opened.disk.calls == before


# Idempotence


def test_a_retry_is_not_appended_again() -> None:
    opened = new_log()
    opened.append(b"other")
    first = opened.append(b"a", b"b", producer=Producer(7, 0, 0))
    size = opened.log.size_bytes

    assert first == Appended(1, 3, False)
    assert opened.append(b"a", b"b", producer=Producer(7, 0, 0)) == Appended(1, 3, True)
    assert opened.log.size_bytes == size


def test_an_invalid_sequence_is_not_appended() -> None:
    opened = new_log()
    for sequence in range(8):
        opened.append(b"a", producer=Producer(7, 3, sequence))

    for producer, error in (
        (Producer(7, 3, 9), OutOfOrderSequenceError),
        (Producer(7, 3, 0), DuplicateSequenceError),
        (Producer(7, 2, 8), FencedProducerError),
        (Producer(7, 4, 8), OutOfOrderSequenceError),
    ):
        with pytest.raises(error):
            opened.append(b"a", producer=producer)
    assert opened.log.log_end_offset == 8


def test_a_producer_of_old_records_is_not_forgotten_while_it_writes() -> None:
    opened = new_log()
    opened.append(b"1999", producer=Producer(7, 0, 0), timestamp_ms=5, now_ms=NOW_MS)

    opened.log.producers.expire(before_ms=NOW_MS, is_kept=lambda _: False)
    assert opened.append(b"1999", producer=Producer(7, 0, 0)).is_duplicate
    opened.log.producers.expire(before_ms=NOW_MS + 1, is_kept=lambda _: False)
    assert not opened.append(b"1999", producer=Producer(7, 0, 0)).is_duplicate


def test_kept_producers_never_expire() -> None:
    opened = new_log()
    opened.append(b"a", b"b", producer=Producer(7, 0, 0))
    opened.append(b"a", producer=Producer(8, 1, 0))

    opened.log.producers.expire(before_ms=NOW_MS + 1, is_kept=lambda number: number == 7)

    assert opened.log.producers.position(7) == ProducerPosition(epoch=0, next_sequence=2)
    assert opened.log.producers.position(8) is None
    assert opened.append(b"a", b"b", producer=Producer(7, 0, 0)).is_duplicate


# Read


@pytest.mark.parametrize("max_bytes", [0, 1, 500, 5000, 1 << 30])
def test_every_read_begins_shortly_before_its_offset_and_ends_with_a_batch(max_bytes: int) -> None:
    opened = new_log()
    opened.append_many(100)
    size = len(numbered(0)) + 100

    for offset in range(100):
        offsets = read(opened, offset, max_bytes=max_bytes, high_watermark=100)
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
        assert offset in offsets
        assert (offset - offsets[0]) * size < SMALL.index_interval_bytes
        limit = max(max_bytes, SMALL.index_interval_bytes) + size
        assert len(offsets) * size <= limit + size


@pytest.mark.invariant("I37")
def test_nothing_at_or_above_the_high_watermark_is_read() -> None:
    opened = new_log()
    opened.append_many(100)

    for high_watermark in range(1, 101):
        assert opened.log.read(high_watermark, max_bytes=1, high_watermark=high_watermark) is None
        last = read(opened, high_watermark - 1, max_bytes=10_000, high_watermark=high_watermark)
        assert last[-1] == high_watermark - 1
        assert read_all(opened.log, high_watermark=high_watermark) == expected(0, high_watermark)


def test_the_end_of_the_log_is_no_error_and_beyond_it_is_one_with_both_bounds() -> None:
    opened = new_log()
    opened.append_many(10)
    opened.log.delete_records(4, high_watermark=10)

    assert opened.log.read(10, max_bytes=1, high_watermark=10) is None
    for offset in 3, 11:
        with pytest.raises(OffsetOutOfRangeError, match=r"offsets 4 to 10 \(exclusive\)") as caught:
            opened.log.read(offset, max_bytes=1, high_watermark=10)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (4, 10)


def test_recovered_batches_are_checked_before_they_are_sent() -> None:
    opened = new_log()
    opened.append_many(30)
    opened.flush(checkpoint=True)
    written = opened.log.read(0, max_bytes=1, high_watermark=30)
    assert written is not None
    assert written.is_ready()
    reopened = opened.kill()
    reopened.append_many(10)

    found = reopened.log.read(0, max_bytes=1, high_watermark=40)
    written = reopened.log.read(39, max_bytes=1, high_watermark=40)

    assert found is not None
    assert not found.is_ready()
    assert written is not None
    assert written.is_ready()


@pytest.mark.invariant("I21")
def test_a_reader_of_a_removed_segment_reads_on() -> None:
    """I21."""
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_bytes=0))
    opened.append_many(30)
    opened.flush()
    part = opened.log.read(0, max_bytes=100_000, high_watermark=30)
    assert part is not None

    opened.log.apply_retention(high_watermark=30, now_ms=NOW_MS).run()

    assert not opened.disk.exists(opened.path(0))
    assert records_in(part.load().read())[0] == numbered(0)


def test_damage_below_the_log_start_offset_is_ignored() -> None:
    opened = new_log()
    opened.append_many(20)
    opened.log.delete_records(10, high_watermark=20)

    opened.log.note_damage(CorruptRecordError("damaged", offset=5, next_offset=8))

    assert opened.log.status is LogStatus.ONLINE


# Time


def test_the_first_batch_with_a_record_at_or_after_a_time_is_found() -> None:
    """I24: also if timestamps are not in order."""
    opened = new_log()
    times = [(number * 37) % 101 for number in range(100)]
    for number, time in enumerate(times):
        opened.append(numbered(number), timestamp_ms=time)

    for timestamp_ms in range(103):
        part = opened.log.find_time(timestamp_ms, high_watermark=100)
        first = next((at for at, time in enumerate(times) if time >= timestamp_ms), None)
        assert (None if part is None else list(records_in(part.load().read()))) == (
            None if first is None else [first]
        )


def test_times_are_found_between_the_start_of_the_log_and_the_high_watermark() -> None:
    opened = new_log()
    for number in range(60):
        opened.append(numbered(number), timestamp_ms=number)
    opened.log.delete_records(20, high_watermark=40)

    for timestamp_ms, offset in ((0, 20), (20, 20), (39, 39), (40, None), (59, None)):
        part = opened.log.find_time(timestamp_ms, high_watermark=40)
        assert (None if part is None else part.offset) == offset


# Roll, retention, deletion


@pytest.mark.parametrize("offset", [0, 1, 30, 34, 35, 68, 99, 100, 1000])
def test_a_truncated_log_equals_one_without_the_truncated_records(offset: int) -> None:
    opened = new_log()
    opened.append_many(100, flush_every=30)

    opened.log.truncate(offset)

    end = min(offset, 100)
    assert opened.log.log_end_offset == end
    assert opened.log.durable_end_offset == (end if offset < 100 else 90)
    assert read_all(opened.log) == expected(0, end)
    opened.append_many(40)
    assert read_all(opened.log) == expected(0, end + 40)
    assert read_all(opened.kill().log) == expected(0, end + 40)


def test_a_truncation_removes_a_batch_that_reaches_above_it() -> None:
    opened = new_log()
    opened.append(b"a", b"b", b"c")
    opened.append(b"d", b"e", b"f")

    opened.log.truncate(5)

    assert opened.log.log_end_offset == 3


def test_a_truncation_forgets_epochs_and_sequences() -> None:
    opened = new_log()
    for epoch in range(5):
        opened.append(b"a", producer=Producer(7, 0, epoch), leader_epoch=epoch)

    opened.log.truncate(3)

    for again in opened, opened.kill():
        assert again.log.leader_epochs.entries == ((0, 0), (1, 1), (2, 2))
    assert again.append(b"a", producer=Producer(7, 0, 2), leader_epoch=9).is_duplicate
    assert again.append(b"a", producer=Producer(7, 0, 3), leader_epoch=9) == Appended(3, 4, False)


def test_a_truncation_below_the_log_start_offset_moves_it() -> None:
    opened = new_log()
    opened.append(b"a", b"b", b"c", b"d")
    opened.log.delete_records(2, high_watermark=4)

    opened.log.truncate(3)

    assert (opened.log.log_start_offset, opened.log.log_end_offset) == (0, 0)


# Flush


def test_a_flush_covers_what_was_appended_before_it_began() -> None:
    opened = new_log()
    opened.append_many(10)
    flush = opened.log.begin_flush()
    assert flush is not None
    opened.append_many(5)

    run(opened.log, flush)

    assert opened.log.durable_end_offset == 10
    opened.flush()
    assert opened.log.durable_end_offset == 15
    assert opened.log.begin_flush() is None


def test_a_flush_from_before_a_truncation_does_not_move_the_durable_end() -> None:
    opened = new_log()
    opened.append_many(10)
    flush = opened.log.begin_flush()
    assert flush is not None
    flush.run()
    opened.log.truncate(5)
    opened.append_many(20)

    opened.log.end_flush(flush)

    assert opened.log.durable_end_offset == 5


def test_an_unreported_flush_is_settled_by_the_next_one() -> None:
    opened = new_log()
    opened.append_many(10)
    flush = opened.log.begin_flush()
    assert flush is not None
    flush.run()

    assert opened.log.begin_flush() is None
    assert opened.log.durable_end_offset == 10


def test_a_flush_that_never_ran_is_done_by_the_next_one() -> None:
    opened = new_log()
    opened.append_many(40)
    opened.log.begin_flush()

    opened.flush()

    assert opened.log.durable_end_offset == 40
    for seed in range(10):
        assert opened.cut_power(seed).log.log_end_offset == 40


def test_a_checkpoint_bounds_what_a_start_must_scan() -> None:
    opened = new_log(LogConfig(checkpoint_bytes=1000))
    opened.append_many(100, flush_every=1)
    assert opened.log.bytes_since_checkpoint < 1200

    again = opened.kill()

    assert again.report.scanned_bytes == opened.log.bytes_since_checkpoint


def test_a_start_after_a_checkpoint_scans_nothing_and_writes_nothing() -> None:
    opened = new_log()
    opened.append_many(100)
    opened.flush(checkpoint=True)

    again = opened.kill()

    assert again.report.scanned_bytes == 0
    assert again.disk.changes == []
    again.log.request_checkpoint()
    assert again.log.begin_flush() is None


# Closing


def test_a_closed_log_refuses_all_calls() -> None:
    opened = new_log()
    opened.append_many(3)

    opened.log.close()

    assert opened.log.status is LogStatus.OFFLINE
    assert opened.log.begin_flush() is None
    assert not opened.log.apply_retention(high_watermark=3, now_ms=NOW_MS)
    opened.log.roll_if_old(now_ms=NOW_MS * 2)
    for use in (
        lambda: opened.append(b"a"),
        lambda: opened.log.read(0, max_bytes=1, high_watermark=3),
        lambda: opened.log.find_time(0, high_watermark=3),
        lambda: opened.log.delete_records(1, high_watermark=3),
        lambda: opened.log.truncate(1),
        opened.log.require_online,
    ):
        with pytest.raises(LogOfflineError, match="is offline: the log was closed"):
            use()


def _position_of(number: int) -> int:
    """Return the position of the header of the batch with this number."""
    return SEGMENT_HEADER_SIZE + number * len(stored([numbered(0)], base_offset=0)) + 20


@pytest.mark.parametrize("cut_at", [5, 30, 60])
def test_a_truncation_refuses_to_drop_damage_below_it(cut_at: int) -> None:
    opened = new_log()
    opened.append_many(100, flush_every=10)
    base = max(base for base in opened.segment_bases() if base < cut_at)
    opened.disk.flip_bit(opened.path(base), _position_of(cut_at - 1 - base), 0)
    opened.log.close()
    opened = opened.kill()

    with pytest.raises(CorruptRecordError):
        opened.log.truncate(cut_at)

    assert opened.log.damage == (DamagedRange(cut_at - 1, cut_at),)
    assert opened.log.log_end_offset == 100
    with pytest.raises(CorruptRecordError):
        opened.log.truncate(cut_at)
    opened.log.truncate(cut_at, may_drop_damage=True)
    assert opened.log.log_end_offset == cut_at - 1
    assert not opened.log.damage


def test_a_truncation_within_a_batch_removes_it_without_damage() -> None:
    opened = new_log()
    opened.append(b"0", b"1", b"2")

    opened.log.truncate(2)

    assert opened.log.log_end_offset == 0
    assert not opened.log.damage


def test_a_truncation_removes_damage_above_it() -> None:
    opened = new_log()
    opened.append_many(20, flush_every=10)
    opened.disk.flip_bit(opened.path(0), _position_of(10), 0)
    opened.log.close()
    opened = opened.kill()

    opened.log.truncate(10)

    assert opened.log.log_end_offset == 10
    assert not opened.log.damage
