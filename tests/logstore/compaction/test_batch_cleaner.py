"""Tests of batch-level compaction: against a naive model, and rule by rule (I27 to I31)."""

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.logstore.logs import NOW_MS, disk_of, image_of, new_log, reopen
from tests.wire.batches import reseal
from tests.wire.memory import at_most_allocated
from tidelog.logstore.compaction import batch_cleaner
from tidelog.logstore.compaction.batch_cleaner import BatchCleaner, CleaningRules, KeyRange
from tidelog.logstore.compaction.offset_map import SLOT_BYTES, OffsetMap
from tidelog.logstore.producer_state import ProducerStates
from tidelog.logstore.segments.batch_run import check_run
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.large_messages import chunk_header
from tidelog.wire.batch.record_batch import (
    FORMAT_COLUMNAR,
    FORMAT_VERSION,
    KNOWN_FORMATS,
    BatchHeader,
    Columns,
    Headers,
    encode_batch,
    parse_header,
    stamp_leader,
    stamp_replica,
)
from tidelog.wire.batch.sparse_batch import encode_empty

Row = tuple[int, bytes | None, bytes | None]
"""Offset, key and value of a record."""
SMALL = 64 * SLOT_BYTES


def no_header_needed(_: int) -> bool:
    return False


def stored(
    *records: tuple[bytes | None, bytes | None],
    base_offset: int = 0,
    epoch: int = 0,
    producer_id: int = 0,
    sequence: int = 0,
    headers: Sequence[Headers] | None = None,
    format_version: int = FORMAT_VERSION,
) -> bytes:
    """Return a stored batch of keys and values."""
    keys, values = [key for key, _ in records], [value for _, value in records]
    batch = encode_batch(
        Columns(len(records), keys=keys, values=values, headers=headers),
        first_timestamp_ms=1,
        producer_id=producer_id,
        base_sequence=sequence,
        format_version=format_version,
    )
    stamp_leader(memoryview(batch), base_offset=base_offset, leader_epoch=epoch)
    stamp_replica(memoryview(batch), durable_position=0)
    return bytes(batch)


def log_of(*batches: Sequence[tuple[bytes | None, bytes | None]]) -> list[bytes]:
    """Return consecutive batches, of all formats in turn."""
    log: list[bytes] = []
    base_offset = 0
    for records, version in zip(batches, cycle(KNOWN_FORMATS), strict=False):
        log.append(stored(*records, base_offset=base_offset, format_version=version))
        base_offset += len(records)
    return log


def headers_of(log: Iterable[bytes]) -> list[BatchHeader]:
    """Check that batches are consecutive, and return their headers."""
    data = memoryview(b"".join(log))
    first = parse_header(data)
    assert first is not None
    return check_run(data, log_end_offset=first.base_offset, last_epoch=0, leader_epoch=1 << 31)


def rows_of(log: Iterable[bytes]) -> list[Row]:
    """Return the records of batches."""
    rows: list[Row] = []
    for batch in log:
        header = parse_header(batch)
        assert header is not None
        columns = decode_columns(header, batch, uncompressed_length_max=1 << 20)
        count = columns.record_count
        for delta, key, value in zip(
            columns.offset_deltas or range(count),
            columns.keys or [None] * count,
            columns.values or [None] * count,
            strict=True,
        ):
            rows.append((header.base_offset + delta, key, value))
    return rows


def range_over(log: Iterable[bytes], *, from_offset: int = 0, memory: int = SMALL) -> KeyRange:
    """Return the key range from an offset on, as far as it fits."""
    found = KeyRange(OffsetMap(memory_bytes=memory), from_offset)
    for header, batch in pairs(log):
        if header.next_offset > from_offset and not found.add(header, batch):
            break
    return found


def pairs(log: Iterable[bytes]) -> list[tuple[BatchHeader, bytes]]:
    """Return batches with their headers."""
    batches = [(parse_header(batch), batch) for batch in log]
    return [(header, batch) for header, batch in batches if header is not None]


def cleaned(
    log: Iterable[bytes],
    found: KeyRange,
    *,
    drops_tombstones: bool = False,
    is_header_needed: Callable[[int], bool] = no_header_needed,
) -> list[bytes]:
    """Return the cleaned batches."""
    rules = CleaningRules(found, drops_tombstones, is_header_needed)
    cleaner = BatchCleaner(rules)
    left = [part for header, batch in pairs(log) for part in cleaner.take(header, batch)]
    return [bytes(part) for part in [*left, *cleaner.end()]]


records = st.tuples(
    st.sampled_from([None, b"a", b"b", b"c", b"d"]), st.none() | st.binary(max_size=1)
)
batches = st.lists(st.lists(records, min_size=1, max_size=4), min_size=1, max_size=12)


@pytest.mark.invariant("I27")
@given(batches, st.integers(0, 12), st.integers(0, 12), st.booleans())
def test_compact_then_read_is_read_then_keep_the_newest(
    given_batches: list[list[tuple[bytes | None, bytes | None]]],
    first_batch: int,
    batch_count: int,
    drops: bool,
) -> None:
    """I27: the last value of each key survives, order and offsets never change."""
    log = log_of(*given_batches)
    before = headers_of(log)
    first = before[min(first_batch, len(log) - 1)].base_offset
    found = KeyRange(OffsetMap(memory_bytes=SMALL), first)
    for header, batch in pairs(log)[first_batch : first_batch + batch_count]:
        assert found.add(header, batch)

    left = cleaned(log, found, drops_tombstones=drops)

    rows = rows_of(log)
    end = found.end_offset
    newest = {key: offset for offset, key, _ in rows if first <= offset < end}
    expected = [
        (offset, key, value)
        for offset, key, value in rows
        if key is None
        or offset >= end
        or (offset >= newest.get(key, 0) and not (drops and value is None))
    ]
    assert rows_of(left) == expected
    after = headers_of(left)
    assert after[0].base_offset == 0
    assert after[-1].next_offset == before[-1].next_offset


@pytest.mark.parametrize("version", KNOWN_FORMATS)
def test_a_cleaned_batch_keeps_its_format(version: int) -> None:
    log = [
        stored((b"a", b"1"), (b"b", b"2"), format_version=version),
        stored((b"a", None), base_offset=2, format_version=FORMAT_VERSION),
    ]

    left = cleaned(log, range_over(log))

    assert rows_of(left) == [(1, b"b", b"2"), (2, b"a", None)]
    assert [header.format_version for header in headers_of(left)] == [version, FORMAT_VERSION]


def test_a_batch_without_records_has_the_format_that_every_reader_knows() -> None:
    log = [
        stored((b"a", b"1"), producer_id=7, format_version=FORMAT_COLUMNAR),
        stored((b"a", b"2"), base_offset=1, format_version=FORMAT_COLUMNAR),
    ]

    left = cleaned(log, range_over(log), is_header_needed=lambda offset: offset == 0)

    assert [
        (header.record_count, header.producer_id, header.format_version)
        for header in headers_of(left)
    ] == [(0, 7, FORMAT_VERSION), (1, 0, FORMAT_COLUMNAR)]


@given(batches)
def test_cleaning_is_idempotent(
    given_batches: list[list[tuple[bytes | None, bytes | None]]],
) -> None:
    once = cleaned(log_of(*given_batches), range_over(log_of(*given_batches)))

    assert cleaned(once, range_over(once)) == once


@pytest.mark.invariant("I27")
@given(batches)
def test_cleaning_in_several_runs_gives_the_same_log(
    given_batches: list[list[tuple[bytes | None, bytes | None]]],
) -> None:
    log = log_of(*given_batches)
    whole = rows_of(cleaned(log, range_over(log)))

    left = log
    for header in headers_of(log):
        part = KeyRange(OffsetMap(memory_bytes=SMALL), header.base_offset)
        assert part.add(header, log[headers_of(log).index(header)])
        left = cleaned(left, part)

    assert rows_of(left) == whole


def test_a_range_ends_before_the_batch_that_does_not_fit() -> None:
    log = log_of(
        *[[(b"%d" % (10 * number + each), b"") for each in range(10)] for number in range(6)]
    )

    found = range_over(log)

    assert (found.end_offset, found.is_full) == (40, True)
    assert found.newest(b"39") == 39
    assert found.newest(b"40") is None


def test_a_run_of_empty_batches_becomes_one() -> None:
    log = log_of([(b"a", b"1")], [(b"a", b"2"), (b"a", b"3")], [(b"a", b"4")], [(b"a", b"5")])

    left = cleaned(log, range_over(log))

    assert [
        (each.base_offset, each.next_offset, each.record_count) for each in headers_of(left)
    ] == [
        (0, 4, 0),
        (4, 5, 1),
    ]
    assert left[-1] == log[-1], "a batch that loses no record stays byte for byte"


def test_an_empty_batch_has_one_leader_epoch() -> None:
    log = [
        stored((b"a", b""), base_offset=number, epoch=epoch)
        for number, epoch in enumerate((1, 1, 2, 3, 3, 3))
    ]

    left = cleaned(log, range_over(log))

    assert [(each.leader_epoch, each.base_offset) for each in headers_of(left)] == [
        (1, 0),
        (2, 2),
        (3, 3),
        (3, 5),
    ]


@pytest.mark.invariant("I30")
def test_compaction_keeps_the_producer_state() -> None:
    """I30: the last batches of every live producer are kept, maybe without records."""
    log = [
        stored((b"a", b""), base_offset=number, producer_id=1 + number % 2, sequence=number // 2)
        for number in range(40)
    ]
    producers = ProducerStates()
    for header in headers_of(log):
        producers.appended(header, header.base_offset, now_ms=0)
    windows = {each.base_offset for state in producers.snapshot() for each in state.window}

    left = cleaned(log, range_over(log), is_header_needed=windows.__contains__)

    rebuilt = ProducerStates()
    for header in headers_of(left):
        rebuilt.appended(header, header.base_offset, now_ms=0)
    assert rebuilt.snapshot() == producers.snapshot()
    assert rows_of(left) == [(39, b"a", b"")]
    assert len(left) == 11
    assert cleaned(left, range_over(left), is_header_needed=windows.__contains__) == left


@pytest.mark.invariant("I31")
def test_compaction_keeps_the_log_end_offset() -> None:
    """I31: the last batch is kept, maybe without records."""
    log = log_of([(b"a", b"1")], [(b"a", None)])

    left = cleaned(log, range_over(log), drops_tombstones=True)

    assert [(each.base_offset, each.next_offset) for each in headers_of(left)] == [(0, 2)]
    assert rows_of(left) == []


@pytest.mark.invariant("I29")
def test_a_tombstone_outlives_the_records_that_it_deletes() -> None:
    """I29: it goes in a later cleaning than the records before it."""
    log = log_of([(b"a", b"1")], [(b"a", None)])

    once = cleaned(log, range_over(log))
    again = cleaned(once, range_over(once, from_offset=2), drops_tombstones=True)

    assert rows_of(once) == [(1, b"a", None)]
    assert rows_of(again) == []


@pytest.mark.parametrize("key", [b"a", None])
def test_compaction_never_removes_chunks_of_large_messages(key: bytes | None) -> None:
    headers = ((chunk_header("0" * 16, 0),), (chunk_header("0" * 16, 1),))
    log = [
        stored((key, b"1"), (key, b"2"), headers=headers),
        stored((b"a", b"3"), (b"a", b"4"), base_offset=2),
    ]

    left = cleaned(log, range_over(log), drops_tombstones=True)

    assert rows_of(left) == [(0, key, b"1"), (1, key, b"2"), (3, b"a", b"4")]


def test_a_chunk_is_no_newer_record_of_its_key() -> None:
    log = [
        stored((b"a", b"1")),
        stored((b"a", b""), base_offset=1, headers=[(chunk_header("0" * 16, 0),)]),
    ]

    assert cleaned(log, range_over(log)) == log


def test_compaction_keeps_undecodable_batches() -> None:
    bad = encode_batch(Columns(1, keys=[b"a"], offset_deltas=[0]), first_timestamp_ms=1)
    bad[-1] = 0xC1
    log = [stored((b"a", b"1")), _resealed(bad, base_offset=1), stored((b"a", b"2"), base_offset=2)]

    left = cleaned(log, range_over(log))

    assert left[1:] == log[1:]


def test_compaction_skips_a_batch_with_too_many_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_cleaner, "RECORDS_MAX", 2)
    log = log_of([(b"a", b"1")], [(b"a", b"2"), (b"a", b"3"), (b"b", None)], [(b"b", b"4")])

    assert cleaned(log, range_over(log), drops_tombstones=True) == log


def test_the_smallest_offset_map_of_a_broker_has_room_for_the_keys_of_any_cleaned_batch() -> None:
    smallest_dedupe_buffer_bytes = 34 << 20  # The bound of `log_cleaner_dedupe_buffer_bytes`.

    keys = OffsetMap(memory_bytes=smallest_dedupe_buffer_bytes)

    assert keys.capacity >= batch_cleaner.RECORDS_MAX


def test_a_batch_larger_than_the_offset_map_is_an_assertion_error() -> None:
    log = log_of([(b"%d" % number, b"") for number in range(49)])

    with pytest.raises(AssertionError, match="could ever pass this batch"):
        range_over(log)


def _resealed(batch: bytearray, *, base_offset: int) -> bytes:
    stamp_leader(memoryview(batch), base_offset=base_offset, leader_epoch=0)
    return bytes(reseal(batch))


def test_a_log_with_empty_batches_survives_a_restart() -> None:
    opened = new_log()
    for count in (500, 1, 70_000):
        end = opened.log.log_end_offset
        gone = encode_empty(base_offset=end, end_offset=end + count, leader_epoch=0)
        header = parse_header(gone)
        assert header is not None
        opened.log.append(memoryview(gone), header, leader_epoch=0, now_ms=NOW_MS)
        opened.append(b"left")
    opened.flush()

    again = reopen(disk_of(image_of(opened.disk)))

    assert again.log.log_end_offset == 70_504
    for offset in (0, 499, 500, 501, 502, 503, 70_502, 70_503):
        part = again.log.read(offset, max_bytes=1, high_watermark=70_504)
        assert part is not None
        (header, *_) = headers_of([part.load().read()])
        assert header.base_offset <= offset < 70_504


@given(st.lists(st.binary(max_size=1), max_size=100))
def test_the_offset_map_agrees_with_a_dictionary(keys: list[bytes]) -> None:
    found, expected = OffsetMap(memory_bytes=SMALL), dict[bytes, int]()
    for offset, key in enumerate(keys):
        if key in expected or found.room:
            found.put(key, offset)
            expected[key] = offset

    assert len(found) == len(expected)
    assert all(found.newest(key) == expected.get(key) for key in keys)
    assert found.newest(b"never put") is None


def test_the_offset_map_stores_offset_0() -> None:
    keys = OffsetMap(memory_bytes=SMALL)

    keys.put(b"", 0)

    assert (keys.newest(b""), len(keys)) == (0, 1)


def test_a_full_offset_map_finds_every_key() -> None:
    keys = OffsetMap(memory_bytes=SLOT_BYTES * 1000)
    for number in range(keys.capacity):
        keys.put(b"%d" % number, number)

    assert (len(keys), keys.room) == (750, 0)
    assert [keys.newest(b"%d" % number) for number in range(750)] == list(range(750))
    keys.put(b"7", 5000)
    assert keys.newest(b"7") == 5000


def test_a_put_into_a_full_offset_map_is_an_assertion_error() -> None:
    keys = OffsetMap(memory_bytes=SMALL)
    for number in range(keys.capacity):
        keys.put(b"%d" % number, number)

    with pytest.raises(AssertionError, match="room"):
        keys.put(b"one more", 100)


def test_the_offset_map_stays_within_its_memory() -> None:
    given_bytes = 1 << 20

    with at_most_allocated(given_bytes + 4096):
        keys = OffsetMap(memory_bytes=given_bytes)
        for number in range(1000):
            keys.put(b"%d" % number, number)
