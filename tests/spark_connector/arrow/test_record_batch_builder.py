"""Tests of records as Arrow columns with exactly the types of the Spark schema."""

import dataclasses
import datetime as dt

import pytest

from tidelog.spark_connector.arrow.record_columns import GivenRecords, of_origin, only
from tidelog.wire.batch.record_batch import Headers

pa = pytest.importorskip("pyarrow")

from tidelog.client.consumer.fetch.record import RecordBatch  # noqa: E402
from tidelog.client.topic_partition import TopicPartition  # noqa: E402
from tidelog.spark_connector.arrow.column_builders import ROWS_MAX  # noqa: E402
from tidelog.spark_connector.arrow.record_batch_builder import (  # noqa: E402
    BYTES_MAX,
    RecordBatchBuilder,
    arrow_schema,
)
from tidelog.spark_connector.read.columns import HEADERS_COLUMN, ORIGIN_COLUMNS, RECORD_COLUMNS  # noqa: E402
from tidelog.wire.batch.batch_columns import ColumnDecoder  # noqa: E402
from tidelog.wire.batch.record_batch import Columns, encode_batch, parse_header  # noqa: E402
from tidelog.wire.batch.sparse_batch import encode_empty, encode_sparse  # noqa: E402

ALL = {**RECORD_COLUMNS, **HEADERS_COLUMN}
DEAD: Headers = (
    ("tidelog.origin.queue", b"pay"),
    ("tidelog.origin.topic", b"payments"),
    ("tidelog.origin.partition", b"2"),
    ("tidelog.origin.offset", b"77"),
    ("tidelog.receive_count", b"3"),
    ("tidelog.first_received_ms", b"1000"),
    ("tidelog.last_received_ms", b"2500"),
    ("tidelog.first_sent_ms", b"500"),
    ("tidelog.reason", b"no such account"),
)


def rows(**columns: str) -> RecordBatchBuilder:
    return RecordBatchBuilder(arrow_schema(list(columns), list(columns.values())))


def records(count: int, first: int = 0, **given: object) -> GivenRecords:
    columns = {
        "offsets": range(first, first + count),
        "first_timestamp_ms": 1_700_000_000_123,
        "timestamp_deltas": None,
        "keys": [None] * count,
        "values": [b"v%d" % number for number in range(count)],
        "headers": [()] * count,
        **given,
    }
    return GivenRecords("orders", 3, False, **columns)  # type: ignore[arg-type]


def test_every_column_has_the_field_of_the_record() -> None:
    found = rows(**ALL)
    headers: list[Headers] = [(("a", b"1"), ("a", b"")), ()]
    found.add(records(2, 40, keys=[b"", b"k"], values=[None, b""], headers=headers))

    batch = found.take()

    assert batch.schema.names == list(ALL)
    assert batch.to_pylist() == [
        {
            "key": b"",
            "value": None,
            "topic": "orders",
            "partition": 3,
            "offset": 40,
            "timestamp": dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, dt.UTC),
            "timestampType": 0,
            "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": b""}],
        },
        {
            "key": b"k",
            "value": b"",
            "topic": "orders",
            "partition": 3,
            "offset": 41,
            "timestamp": dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, dt.UTC),
            "timestampType": 0,
            "headers": None,
        },
    ]


def test_records_removed_by_compaction_have_no_row() -> None:
    found = rows(value="binary", offset="bigint", key="binary")
    columns = Columns(4, keys=[b"a", b"b", None, b"d"], values=[b"0", b"1", b"2", None])
    whole = encode_batch(columns, first_timestamp_ms=1)
    header = parse_header(whole)
    assert header is not None
    empty = encode_empty(base_offset=4, end_offset=1_000_000, leader_epoch=0)
    only_values = ColumnDecoder(["values"])
    for batch in (encode_sparse(header, columns, [1, 3]), empty, whole):
        left_header = parse_header(batch)
        assert left_header is not None
        at = TopicPartition("orders", 3)
        left = RecordBatch(
            at,
            left_header,
            batch,
            high_watermark=9,
            uncompressed_bytes_max=1 << 20,
            decoder=only_values,
        )
        found.add(left.between(0, 3))

    assert found.take().to_pydict() == {
        "value": [b"1", b"0", b"1", b"2"],
        "offset": [1, 0, 1, 2],
        "key": [b"b", b"a", b"b", None],
    }


@pytest.mark.statement("s2")
def test_arrow_types_are_those_of_sparks_own_conversion() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415
    from pyspark.sql.types import (  # noqa: PLC0415
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )  # fmt: skip

    pair = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    kinds = {
        "binary": BinaryType(), "string": StringType(), "int": IntegerType(),
        "bigint": LongType(), "timestamp": TimestampType(),
        "array<struct<key:string,value:binary>>": ArrayType(pair),
    }  # fmt: skip
    ours = arrow_schema(list(ALL), list(ALL.values()))

    spark = to_arrow_schema(
        StructType([StructField(name, kinds[kind]) for name, kind in ALL.items()]), timezone="UTC"
    )

    assert ours == spark
    assert [field.nullable for field in ours] == [field.nullable for field in spark]


def test_small_log_batches_are_joined_to_one_arrow_batch() -> None:
    found = rows(offset="bigint", value="binary")
    for first in range(0, ROWS_MAX, 8):
        assert not found.is_full
        found.add(records(8, first))

    assert found.is_full
    assert [row["offset"] for row in found.take().to_pylist()] == list(range(ROWS_MAX))
    assert found.row_count == found.byte_count == 0


def test_an_arrow_batch_is_full_by_bytes_too() -> None:
    found = rows(value="binary")
    found.add(records(1, values=[bytes(BYTES_MAX)]))

    assert found.is_full


def test_offsets_with_gaps_and_long_offset_ranges_are_kept() -> None:
    found = rows(offset="bigint")
    found.add(records(3, offsets=[5, 9, 1 << 40]))
    found.add(records(ROWS_MAX + 1, 7))

    batch = found.take()

    assert batch.column(0).to_pylist() == [5, 9, 1 << 40, *range(7, ROWS_MAX + 8)]


def test_rows_of_several_batches_keep_topic_partition_and_times() -> None:
    found = rows(topic="string", partition="int", offset="bigint", timestamp="timestamp")
    found.add(records(2, 5))
    found.add(records(1, 7, first_timestamp_ms=1000, timestamp_deltas=[2]))
    found.add(records(2, 9, first_timestamp_ms=2000, timestamp_deltas=[-1, 7]))
    found.add(records(1, 3, offsets=[12]))

    batch = found.take()

    assert batch.column("topic").to_pylist() == ["orders"] * 6
    assert batch.column("partition").to_pylist() == [3] * 6
    assert batch.column("offset").to_pylist() == [5, 6, 7, 9, 10, 12]
    sent = dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, dt.UTC)
    milliseconds = [1002, 1999, 2007]
    began = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    others = [began + dt.timedelta(milliseconds=each) for each in milliseconds]
    assert batch.column("timestamp").to_pylist() == [sent, sent, *others, sent]


def test_the_timestamp_type_may_change_between_batches() -> None:
    found = rows(timestampType="int")
    for has_append_time in (False, True, True, False):
        given = records(2)
        found.add(dataclasses.replace(given, has_append_time=has_append_time))

    assert found.take().column(0).to_pylist() == [0, 0, 1, 1, 1, 1, 0, 0]
    found.add(records(1))
    assert found.take().column(0).to_pylist() == [0]


def test_a_dead_letter_has_origin_columns_and_other_records_have_nulls() -> None:
    found = rows(**ORIGIN_COLUMNS)
    broken: Headers = (("tidelog.origin.offset", b"x"), ("tidelog.receive_count", b"9" * 30))
    found.add(records(3, headers=[DEAD, (), broken]))

    full, empty, damaged = found.take().to_pylist()

    assert full == {
        "originQueue": "pay",
        "originTopic": "payments",
        "originPartition": 2,
        "originOffset": 77,
        "receiveCount": 3,
        "firstReceived": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
        "lastReceived": dt.datetime(1970, 1, 1, 0, 0, 2, 500_000, tzinfo=dt.UTC),
        "firstSent": dt.datetime(1970, 1, 1, 0, 0, 0, 500_000, tzinfo=dt.UTC),
        "reason": "no such account",
    }
    assert set(empty.values()) == set(damaged.values()) == {None}


def test_the_length_of_records_is_the_number_of_offsets() -> None:
    records = GivenRecords("a", 0, False, [4, 6], 1, [0, 1], [None, b"k"], [b"", None], [(), ()])

    assert len(records) == 2


def test_a_selection_of_records_gets_other_values() -> None:
    records = GivenRecords(
        "a", 0, True, [4, 6, 7], 1, [0, 1, 2], [None, b"k", None], [b"", None, b"x"], [(), (), ()]
    )

    kept = only(records, [0, 2], [b"A", b"B", b"C"])

    assert kept == GivenRecords(
        "a", 0, True, [4, 7], 1, [0, 2], [None, None], [b"A", b"C"], [(), ()]
    )


def test_dead_letters_of_one_queue_are_separated_from_those_of_others() -> None:
    mine: Headers = (("tidelog.origin.queue", b"pay"), ("tidelog.reason", b"?"))
    other: Headers = (("tidelog.origin.queue", b"ship"),)

    def records(*headers: Headers) -> GivenRecords:
        count = len(headers)
        return GivenRecords(
            "dead", 0, True, range(count), 0, None, [None] * count, [b""] * count, headers
        )

    assert of_origin(records(mine, mine), "pay") == records(mine, mine)
    found = of_origin(records(mine, other, (), mine), "pay")
    assert found is not None
    assert list(found.offsets) == [0, 3]
    assert of_origin(records(other, ()), "pay") is None
