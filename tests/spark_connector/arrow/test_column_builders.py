"""Tests of Arrow columns built from batches, with and without Python objects per record."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa

from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.arrow.column_builders import ROWS_MAX, UnfitTimeError
from tidelog.spark_connector.arrow.record_batch_builder import RecordBatchBuilder, arrow_schema
from tidelog.wire.batch.batch_columns import ColumnDecoder
from tidelog.wire.batch.byte_column import ByteColumn
from tidelog.wire.batch.record_batch import (
    Columns,
    encode_batch,
    parse_header,
    stamp_leader,
    stamp_replica,
)

NOTHING = ColumnDecoder(())


def rows(**columns: str) -> RecordBatchBuilder:
    return RecordBatchBuilder(arrow_schema(list(columns), list(columns.values())))


def batch(columns: Columns, base_offset: int = 0, format_version: int = 2) -> RecordBatch:
    encoded = encode_batch(
        columns,
        first_timestamp_ms=1_700_000_000_000 + base_offset,
        format_version=format_version,
    )
    stamp_leader(memoryview(encoded), base_offset=base_offset, leader_epoch=0)
    stamp_replica(memoryview(encoded), durable_position=0)
    header = parse_header(encoded)
    assert header is not None
    at = TopicPartition("orders", 3)
    return RecordBatch(
        at, header, encoded, high_watermark=9, uncompressed_bytes_max=1 << 20, decoder=NOTHING
    )


_SOME = st.binary(min_size=1, max_size=3)
_WITHOUT_NULLS = st.lists(_SOME | st.just(b""), min_size=1, max_size=5)
_LONGER = st.lists(
    st.binary(min_size=1, max_size=300) | st.just(b"a" * 300), min_size=1, max_size=5
)
_MIXED = st.lists(st.none() | _SOME | st.just(b""), min_size=1, max_size=5)
_DELTA = st.none() | st.integers(-200, 130) | st.sampled_from([-40_000, 1 << 20, 1 << 40])


@given(
    st.lists(
        st.tuples(
            _WITHOUT_NULLS | _LONGER | _MIXED, st.booleans(), _DELTA, st.sampled_from([1, 2])
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 3),
    st.integers(0, 8),
)
def test_runs_of_all_kinds_follow_each_other_in_a_column(
    given_batches: list[tuple[list[bytes | None], bool, int | None, int]], cut: int, taken_at: int
) -> None:
    found = rows(key="binary", value="binary", offset="bigint", timestamp="timestamp")
    expected: list[dict[str, object]] = []
    got: list[dict[str, object]] = []
    base_offset = 0
    for number, (column, is_key, delta, format_version) in enumerate(given_batches):
        count = len(column)
        deltas = None if delta is None else [delta] * count
        columns = (
            Columns(count, timestamp_deltas=deltas, keys=column)
            if is_key
            else Columns(count, timestamp_deltas=deltas, values=column)
        )
        part = batch(columns, base_offset, format_version).between(base_offset + cut, None)
        if len(part):
            found.add(part)
        time_ms = 1_700_000_000_000 + base_offset + (delta or 0)
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=time_ms)
        for row in range(cut, count):
            key, value = (column[row], None) if is_key else (None, column[row])
            offset = base_offset + row
            expected.append({"key": key, "value": value, "offset": offset, "timestamp": moment})
        base_offset += count
        if number == taken_at and found.row_count:
            got += found.take().to_pylist()

    if found.row_count:
        got += found.take().to_pylist()
    assert got == expected


def test_more_values_than_rows_of_a_batch_are_kept() -> None:
    found = rows(value="binary")
    values = [b"%05d" % number for number in range(ROWS_MAX + 3)]
    for _ in range(2):
        found.add(batch(Columns(len(values), values=values)))
        assert found.is_full
        assert found.take().column(0).to_pylist() == values


@pytest.mark.parametrize(
    "columns", [Columns(2, values=[b"a", b"bc"]), Columns(2, keys=[b"a", None])]
)
def test_values_of_format_2_become_arrow_without_objects(
    columns: Columns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ByteColumn, "values", None)  # A call would fail.
    found = rows(key="binary", value="binary")

    found.add(batch(columns))

    nothing = [None, None]
    assert found.take().to_pydict() == {
        "key": columns.keys or nothing,
        "value": columns.values or nothing,
    }


def test_the_rows_of_an_arrow_batch_stay_as_they_were_when_the_next_ones_arrive() -> None:
    found = rows(value="binary")
    found.add(batch(Columns(2, values=[b"first", None])))
    first = found.take()

    found.add(batch(Columns(2, values=[b"after", b"wards"])))

    assert found.take().column(0).to_pylist() == [b"after", b"wards"]
    assert first.column(0).to_pylist() == [b"first", None]


@pytest.mark.parametrize("format_version", [1, 2])
def test_a_time_beyond_those_of_spark_is_refused_and_the_error_names_it(
    format_version: int,
) -> None:
    last_ms = ((1 << 63) - 1) // 1000
    first_ms = 1_700_000_000_000
    for beyond in (False, True):
        deltas = [0, last_ms - first_ms + beyond]
        found = rows(timestamp="timestamp")
        found.add(batch(Columns(2, timestamp_deltas=deltas, values=[b"", b""]), 0, format_version))
        if beyond:
            with pytest.raises(UnfitTimeError, match=rf"^orders/3: the timestamp {last_ms + 1} ms"):
                found.take()
        else:
            times = found.take().column("timestamp").cast(pa.int64()).to_pylist()
            assert times == [first_ms * 1000, last_ms * 1000]
