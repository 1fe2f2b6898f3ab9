"""Tests of rows as record batches: partitions, order, and errors before any write."""

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.producer.partitioner import partition_for_key
from tidelog.spark_connector.options import WriteOptions
from tidelog.spark_connector.write.rows import (
    BATCH_BYTES_MAX,
    KeyPartitioner,
    RowBatch,
    check_columns,
    row_batches,
    topics_of,
)
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.byte_column import ByteColumn
from tidelog.wire.batch.record_batch import (
    FORMAT_COLUMNAR,
    FORMAT_VERSION,
    check_produced,
    encode_batch,
)
from tidelog.wire.errors import ConfigError, UnknownPartitionError

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))


def options(**given: str) -> WriteOptions:
    return WriteOptions.parse({"bootstrap.servers": "localhost:1", **given})


def rows(batch: pa.RecordBatch, sticky: int = 0, **given: str) -> list[RowBatch]:
    return list(
        row_batches(
            batch, options(**given), {"a": 4, "b": 2}, sticky=sticky, known_keys=KeyPartitioner()
        )
    )


@pytest.mark.statement("s33")
@pytest.mark.parametrize(
    ("fields", "given", "complaint"),
    [
        ([("key", "string")], {"topic": "a"}, "no column value"),
        ([("value", "string")], {}, "there is no topic"),
        ([("value", "int")], {"topic": "a"}, "value is int, it must be string or binary"),
        ([("value", "binary"), ("key", "bigint")], {"topic": "a"}, "key is bigint"),
        ([("value", "binary"), ("topic", "binary")], {}, "topic is binary"),
        ([("value", "binary"), ("partition", "bigint")], {"topic": "a"}, "partition is bigint"),
        ([("value", "binary"), ("headers", "string")], {"topic": "a"}, "headers is string"),
    ],
)
def test_invalid_columns_are_refused_before_any_row_is_written(
    fields: list[tuple[str, str]], given: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_columns(fields, options(**given))


def test_rows_read_from_a_topic_can_be_written_unchanged() -> None:
    fields = [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"),
        ("offset", "bigint"), ("timestamp", "timestamp"), ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip

    check_columns(fields, options())
    check_columns(
        [("value", "string"), ("headers", "int")], options(topic="a", includeHeaders="false")
    )


def test_the_partition_of_a_row_is_its_column_or_by_key_or_sticky() -> None:
    batch = pa.record_batch(
        {
            "value": pa.array([b"0", b"1", b"2", b"3"]),
            "key": pa.array([b"k", b"k", None, b"other"]),
            "partition": pa.array([3, None, None, None], pa.int32()),
        }
    )

    places: dict[bytes, int] = {}
    for each in rows(batch, 2, topic="a"):
        for value in each.columns.values or ():
            assert value is not None
            places[value] = each.partition

    assert places == {
        b"0": 3,
        b"1": partition_for_key(b"k", 4),
        b"2": 2,
        b"3": partition_for_key(b"other", 4),
    }


def test_each_row_may_name_its_topic() -> None:
    batch = pa.record_batch({"value": ["x", "y", None], "topic": ["a", "b", "a"]})

    assert topics_of(batch, options()) == ["a", "b"]
    assert topics_of(batch, options(topic="c")) == ["c"]
    assert [(each.topic, list(each.columns.values or ())) for each in rows(batch)] == [
        ("a", [b"x", None]),
        ("b", [b"y"]),
    ]


@pytest.mark.statement("s32")
def test_a_row_with_a_null_topic_or_an_unknown_partition_is_refused() -> None:
    with pytest.raises(ConfigError, match="topic is null"):
        topics_of(
            pa.record_batch({"value": ["x"], "topic": pa.array([None], pa.string())}), options()
        )
    for partition in (-1, 4):
        batch = pa.record_batch({"value": ["x"], "partition": pa.array([partition], pa.int32())})
        with pytest.raises(UnknownPartitionError, match="'a', which has 4"):
            rows(batch, topic="a")


def test_null_and_empty_values_stay_distinct_and_headers_may_repeat() -> None:
    headers = [
        [{"key": "h", "value": b"1"}, {"key": "h", "value": b""}],
        None,
        [],
    ]
    batch = pa.record_batch(
        {
            "value": pa.array([b"", None, b"v"]),
            "key": pa.array([b"", b"", b""]),
            "headers": pa.array(headers, HEADERS),
        }
    )

    (found,) = rows(batch, topic="a")

    assert list(found.columns.values or ()) == [b"", None, b"v"]
    assert list(found.columns.keys or ()) == [b"", b"", b""]
    assert found.columns.headers == [(("h", b"1"), ("h", b"")), (), ()]
    (without,) = rows(batch, topic="a", includeHeaders="false")
    assert without.columns.headers is None


def test_a_header_without_a_name_is_refused() -> None:
    headers = pa.array([[{"key": None, "value": b"1"}]], HEADERS)

    with pytest.raises(ConfigError, match="header without a name"):
        rows(pa.record_batch({"value": ["x"], "headers": headers}), topic="a")


_TEXTS = st.lists(
    st.none() | st.binary(max_size=3) | st.sampled_from([b"a" * 255, b"b" * 256, b"c" * 65_536]),
    min_size=1,
    max_size=6,
)


@given(
    values=_TEXTS,
    first=st.integers(0, 3),
    kind=st.sampled_from([pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]),
    format_version=st.sampled_from([FORMAT_VERSION, FORMAT_COLUMNAR]),
)
def test_rows_of_any_type_and_place_are_encoded_as_they_are(
    values: list[bytes | None], first: int, kind: pa.DataType, format_version: int
) -> None:
    """Also behind the first row of their Arrow buffers, and with bytes under a null."""
    texts = [None if value is None else value.decode("ascii", "ignore") for value in values]
    if kind in {pa.binary(), pa.large_binary()}:
        texts = values  # type: ignore[assignment]
    expected = [text.encode() if isinstance(text, str) else text for text in texts][first:]
    batch = pa.record_batch({"value": pa.array(texts, kind)}).slice(first)

    found: list[bytes | None] = []
    for each in rows(batch, topic="a"):
        encoded = encode_batch(each.columns, first_timestamp_ms=1, format_version=format_version)
        header = check_produced(memoryview(encoded))
        columns = decode_columns(header, encoded, uncompressed_length_max=1 << 20)
        found += columns.values or ()

    assert found == expected


def test_the_bytes_under_a_null_are_not_written() -> None:
    whole = pa.array([b"seen", b"hidden"])
    _, ends, content = whole.buffers()
    column = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\1"), ends, content])
    assert column.to_pylist() == [b"seen", None]

    (found,) = rows(pa.record_batch({"value": column, "key": column}), topic="a")[:1]

    assert isinstance(found.columns.values, ByteColumn)
    assert b"hidden" not in bytes(found.columns.values.blob)


def test_rows_are_cut_into_batches_and_a_large_row_is_a_single_batch() -> None:
    sizes = [BATCH_BYTES_MAX // 2, BATCH_BYTES_MAX // 3, BATCH_BYTES_MAX * 2, 10, 10]
    batch = pa.record_batch({"value": pa.array([bytes(size) for size in sizes])})

    found = [
        [len(value or b"") for value in each.columns.values or ()]
        for each in rows(batch, topic="a")
    ]

    assert found == [sizes[:2], sizes[2:3], sizes[3:]]


OffsetLimit = tuple[str, int]
Given = tuple[str, int | None, bytes | None]


def naive_place(row: Given, sticky: int) -> OffsetLimit:
    topic, partition, key = row
    count = {"a": 4, "b": 2}[topic]
    if partition is not None:
        return topic, partition
    return topic, sticky % count if key is None else partition_for_key(key, count)


_given = st.tuples(
    st.sampled_from(["a", "b"]),
    st.none() | st.integers(0, 1),
    st.none() | st.sampled_from([b"", b"k", b"key", b"another"]),
)


@given(
    table=st.lists(_given, min_size=1, max_size=40),
    columns=st.sets(st.sampled_from(["topic", "partition", "key"])),
    sticky=st.integers(0, 9),
)
def test_every_row_goes_to_its_partition_once_and_in_order(
    table: list[Given], columns: set[str], sticky: int
) -> None:
    """The partitions equal those of a row-by-row placement, for any columns."""
    given_rows = [
        (
            topic if "topic" in columns else "a",
            partition if "partition" in columns else None,
            key if "key" in columns else None,
        )
        for topic, partition, key in table
    ]
    topics, partitions, keys = (list(column) for column in zip(*given_rows, strict=True))
    numbers = [b"%d" % row for row in range(len(table))]
    data = {
        "value": pa.array(numbers, pa.binary()),
        "topic": pa.array(topics, pa.string()),
        "partition": pa.array(partitions, pa.int32()),
        "key": pa.array(keys, pa.binary()),
    }
    batch = pa.record_batch({name: data[name] for name in ("value", *sorted(columns))})

    found: dict[OffsetLimit, list[bytes | None]] = {}
    for each in rows(batch, sticky, **({} if "topic" in columns else {"topic": "a"})):
        place = found.setdefault((each.topic, each.partition), [])
        place += each.columns.values or ()
        if "key" in columns:
            assert each.columns.keys is not None
            assert [keys[int(value or b"")] for value in each.columns.values or ()] == list(
                each.columns.keys
            )

    expected: dict[OffsetLimit, list[bytes | None]] = {}
    for row, number in zip(given_rows, numbers, strict=True):
        expected.setdefault(naive_place(row, sticky), []).append(number)
    assert found == expected


def test_a_key_keeps_its_partition_beyond_the_cache_limit() -> None:
    known = KeyPartitioner().among(7)
    keys = [b"%d" % number for number in range(100_001)]

    found = [known[key] for key in keys]

    assert found == [partition_for_key(key, 7) for key in keys[:1]] + found[1:]
    assert [known[key] for key in keys[:10]] == found[:10]
    assert len(known) < 100_000
