"""Fetched batches: columns, records, and parts of them."""

import copy
import pickle
from collections.abc import Callable

import pytest

from tests.wire.batches import lie, sample_batch
from tidelog.client.consumer.fetch.record import Record, RecordBatch
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.batch_columns import ALL_COLUMNS, ColumnDecoder
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import (
    FLAG_LOG_APPEND_TIME,
    FORMAT_COLUMNAR,
    FORMAT_VERSION,
    Columns,
    encode_batch,
    parse_header,
    stamp_leader,
    stamp_replica,
)
from tidelog.wire.batch.sparse_batch import encode_empty
from tidelog.wire.errors import CorruptRecordError

AT = TopicPartition("orders", 2)
HEADERS = (("name", b"value"),)


def batch_of(
    columns: Columns,
    *,
    base_offset: int = 10,
    limit: int = 1 << 20,
    decoder: ColumnDecoder = ALL_COLUMNS,
    format_version: int = FORMAT_VERSION,
) -> RecordBatch:
    encoded = encode_batch(columns, first_timestamp_ms=1000, format_version=format_version)
    stamp_leader(memoryview(encoded), base_offset=base_offset, leader_epoch=0)
    stamp_replica(memoryview(encoded), durable_position=0)
    header = parse_header(encoded)
    assert header is not None
    return RecordBatch(
        AT, header, encoded, high_watermark=99, uncompressed_bytes_max=limit, decoder=decoder
    )


FULL = Columns(
    3,
    timestamp_deltas=[0, 5, 3],
    keys=[b"a", None, b"c"],
    values=[b"1", b"2", None],
    headers=[(), HEADERS, ()],
)
VALUES_ONLY = Columns(3, values=[b"1", b"2", b"3"])


@pytest.mark.parametrize("flags", [Codec.ZSTD, Codec.ZSTD | FLAG_LOG_APPEND_TIME])
def test_too_many_records_are_refused_before_memory_is_spent_on_them(flags: int) -> None:
    count = 1 << 24
    bomb = lie(
        sample_batch(),
        flags=flags,
        record_count=count,
        last_offset_delta=count - 1,
        uncompressed_length=count + 10,
    )
    header = parse_header(bomb)
    assert header is not None

    with pytest.raises(CorruptRecordError, match=r"16777216 records .*, the limit is") as why:
        RecordBatch(AT, header, bomb, high_watermark=99, uncompressed_bytes_max=1 << 28)

    assert why.value.detail("next_offset") == header.next_offset


def test_every_record_has_its_offset_timestamp_and_content() -> None:
    records = batch_of(FULL).records()

    assert records == [
        Record("orders", 2, 10, 1000, b"a", b"1", ()),
        Record("orders", 2, 11, 1005, None, b"2", HEADERS),
        Record("orders", 2, 12, 1003, b"c", None, ()),
    ]


def test_absent_columns_have_default_values() -> None:
    batch = batch_of(VALUES_ONLY)

    assert len(batch) == 3
    assert list(batch.offsets) == [10, 11, 12]
    assert list(batch.timestamps_ms) == [1000] * 3
    assert list(batch.keys) == [None] * 3
    assert list(batch.headers) == [()] * 3
    assert [record.value for record in batch] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("likely", [(), ("values",), ("keys", "headers")])
def test_a_column_outside_of_the_decoder_is_decoded_on_access(
    likely: tuple[str, ...],
) -> None:
    batch = batch_of(FULL, decoder=ColumnDecoder(likely))

    assert list(batch.offsets) == [10, 11, 12]
    part = batch.between(11, None)
    assert list(batch.values) == [b"1", b"2", None]
    assert batch.records() == batch_of(FULL).records()
    assert list(part.keys) == [None, b"c"]
    assert part.records() == batch_of(FULL).between(11, None).records()


def test_a_part_has_the_records_between_two_offsets() -> None:
    part = batch_of(FULL).between(11, 12)

    assert (part.base_offset, part.next_offset, len(part)) == (11, 12, 1)
    assert part.records() == [Record("orders", 2, 11, 1005, None, b"2", HEADERS)]


def test_a_part_that_is_everything_is_the_batch_itself() -> None:
    batch = batch_of(FULL)

    assert batch.between(0, None) is batch
    assert batch.between(10, 13) is batch


def test_a_part_after_the_end_is_empty() -> None:
    part = batch_of(FULL).between(13, None)

    assert (len(part), part.records()) == (0, [])


def test_gaps_left_by_compaction_are_no_records() -> None:
    batch = batch_of(Columns(3, values=[b"1", b"2", b"3"], offset_deltas=[0, 4, 9]))

    assert batch.next_offset == 20
    assert list(batch.offsets) == [10, 14, 19]
    assert list(batch.between(11, 19).values) == [b"2"]


def test_a_batch_emptied_by_compaction_has_the_next_offset() -> None:
    encoded = encode_empty(base_offset=10, end_offset=1_000_000, leader_epoch=0)
    header = parse_header(encoded)
    assert header is not None

    batch = RecordBatch(AT, header, encoded, high_watermark=99, uncompressed_bytes_max=99)

    for part in (batch, batch.between(500, 700), batch.between(500, None)):
        assert (len(part), part.records(), list(part.offsets), list(part.keys)) == (0, [], [], [])
    assert batch.between(500, 700).next_offset == 700
    assert batch.next_offset == 1_000_000


def test_a_payload_larger_than_the_limit_is_not_unpacked() -> None:
    batch = batch_of(VALUES_ONLY, limit=5)

    with pytest.raises(CorruptRecordError):
        batch.records()


def test_a_batch_of_format_1_has_no_column_of_bytes() -> None:
    batch = batch_of(VALUES_ONLY)

    assert batch.byte_column("values") is None
    assert (batch.size_of("keys"), batch.size_of("values")) == (None, 10)


def test_the_column_of_a_part_has_the_bytes_of_its_records() -> None:
    values = [b"1", b"22", None, b"4" * 300]
    batch = batch_of(Columns(4, values=values), format_version=FORMAT_COLUMNAR)

    for first, end in [(10, None), (10, 12), (11, 13), (13, None), (12, 12)]:
        part = batch.between(first, end)
        column = part.byte_column("values")
        assert column is not None
        assert list(column) == list(part.values) == values[first - 10 : (end or 14) - 10]
        assert len(column.blob) == sum(len(value or b"") for value in column)
    assert batch.byte_column("keys") is None


def size_of_values(batch: RecordBatch) -> int | None:
    return batch.size_of("values")


@pytest.mark.parametrize("ask", [RecordBatch.records, size_of_values])
def test_an_undecodable_batch_raises_its_offset_on_every_access(
    ask: Callable[[RecordBatch], object],
) -> None:
    with pytest.raises(CorruptRecordError, match="orders/2: the batch at offset 10") as caught:
        ask(batch_of(VALUES_ONLY, limit=5))

    assert caught.value.next_offset == 13


@pytest.mark.parametrize("columns", [FULL, VALUES_ONLY, Columns(3, keys=[b"", b"k" * 300, b"l"])])
def test_a_batch_of_format_2_reads_like_one_of_format_1(columns: Columns) -> None:
    one, two = (
        batch_of(columns, format_version=each) for each in (FORMAT_VERSION, FORMAT_COLUMNAR)
    )

    for first, end in ((0, None), (11, None), (0, 12), (11, 12)):
        old, new = one.between(first, end), two.between(first, end)
        for column in ("offsets", "timestamps_ms", "timestamp_deltas", "keys", "values", "headers"):
            assert getattr(new, column) == getattr(old, column)
        assert new.records() == old.records()
        assert list(new) == old.records()
        assert list(zip(new.keys, new.values, strict=True)) == [
            (record.key, record.value) for record in old
        ]


def test_values_of_format_2_are_a_sequence_like_a_list() -> None:
    values = batch_of(VALUES_ONLY, format_version=FORMAT_COLUMNAR).values

    assert list(values) == list(values) == [b"1", b"2", b"3"]
    assert (values[0], values[-1], values[1:]) == (b"1", b"3", [b"2", b"3"])
    assert list(values) == [b"1", b"2", b"3"]
    assert (values == [b"1", b"2", b"3"], values == [b"1", b"2"]) == (True, False)
    assert values == batch_of(VALUES_ONLY, format_version=FORMAT_COLUMNAR).values
    assert repr(values) == "[b'1', b'2', b'3']"
    assert copy.deepcopy(values) == pickle.loads(pickle.dumps(values)) == [b"1", b"2", b"3"]
    assert b"2" in values
    assert b"4" not in values
