"""Tests of the reader of values: decoded columns of a real topic, and the ways of bad rows."""

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import ArrayType, LongType, StringType, StructType

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.spark_connector.arrow.record_batch_builder import arrow_schema
from tidelog.spark_connector.read.columns import COLUMN_TYPES
from tidelog.spark_connector.read.slice_reader import read_slice
from tidelog.spark_connector.source import TidelogSource
from tidelog.spark_connector.values.dead_letters import COLUMNS
from tidelog.spark_connector.values.value_reader import BadValueError, ValueReader
from tidelog.spark_connector.values.value_type import ValueType
from tidelog.spark_connector.write import transaction
from tidelog.wire.errors import ConfigError, UnknownTopicError
from tidelog.wire.messages.transactions import BeginTransactionReply

VALUE = StructType().add("id", LongType()).add("name", StringType())
BAD_VALUE = "struct<value:binary,reason:string>"


def rows(town: SparkFixture, schema: StructType, **options: str) -> Iterator[dict[str, Any]]:
    """Yield the rows as Spark reads them: planned once, pickled, read in tasks."""
    dotted = {name.replace("_", "."): text for name, text in options.items()}
    reader = TidelogSource(town.raw(**dotted)).reader(schema)
    partitions: list[InputPartition]
    reader, partitions = pickle.loads(pickle.dumps((reader, list(reader.partitions()))))
    for partition in partitions:
        for batch in reader.read(partition):
            assert batch.schema.names == schema.names
            yield from batch.to_pylist()


def letters(town: SparkFixture, topic: str) -> list[tuple[Any, ...]]:
    """Return key, value and headers of the records of a topic."""
    headers = ArrayType(StructType().add("key", "string").add("value", "binary"))
    schema = StructType().add("key", "binary").add("value", "binary").add("headers", headers)
    found = rows(replace(town, topic=topic), schema)
    return [
        (row["key"], row["value"], [tuple(each.values()) for each in row["headers"]])
        for row in found
    ]


def test_values_become_columns_beside_those_of_the_record(town: SparkFixture) -> None:
    town.create()
    town.write([b'{"id":1,"name":"a"}', None, b'{"id":2}'])

    schema = StructType().add("offset", LongType()).add("value", VALUE)
    found = list(rows(town, schema, value_format="json"))

    assert found == [
        {"offset": 0, "value": {"id": 1, "name": "a"}},
        {"offset": 1, "value": None},
        {"offset": 2, "value": {"id": 2, "name": None}},
    ]
    only_offset = list(rows(town, StructType().add("offset", LongType()), value_format="json"))
    assert [row["offset"] for row in only_offset] == [0, 1, 2]


def test_a_bad_value_fails_the_task_and_the_error_names_it(town: SparkFixture) -> None:
    town.create()
    town.write([b'{"id":1}', b'{"id":"x"}', b"?"])

    with pytest.raises(BadValueError) as failed:
        list(rows(town, StructType().add("value", VALUE), value_format="json"))

    assert str(failed.value) == (
        f"{town.topic}/0: the value at offset 1 does not match the schema: Expected `int | null`,"
        " got `str` - at `$.id`; set value.badRows to column or deadLetter to read on"
    )


def test_bad_values_go_to_a_column(town: SparkFixture) -> None:
    town.create()
    town.write([b'{"id":1}', b"?", None])
    source = TidelogSource(
        town.raw(**{"value.format": "json", "value.schema": "id bigint", "value.badRows": "column"})
    )

    assert "`value` struct<id bigint>, `topic`" in source.schema()
    assert source.schema().endswith(f", `badValue` {BAD_VALUE}")
    bad = StructType.fromJson(
        {
            "fields": [
                {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
                {"name": "reason", "type": "string", "nullable": True, "metadata": {}},
            ]
        }
    )
    schema = StructType().add("badValue", bad).add("value", VALUE)
    found = list(rows(town, schema, value_format="json", value_badRows="column"))

    assert found == [
        {"badValue": None, "value": {"id": 1, "name": None}},
        {
            "badValue": {
                "value": b"?",
                "reason": "JSON is malformed: invalid character (byte 0)",
            },
            "value": None,
        },
        {"badValue": None, "value": None},
    ]


def test_bad_values_go_to_a_dead_letter_topic_with_their_origin(town: SparkFixture) -> None:
    town.create()
    bad = f"{town.topic}-bad"
    town.client.admin.create_topic(bad, 1)
    town.write_one(b'{"id":1}')
    town.write_one(b"?", key=b"k", headers=(("trace", b"7"),))
    town.write_one(b'{"id":2}')
    options = {"value_format": "json", "value_badRows": "deadLetter", "value_deadLetterTopic": bad}
    schema = StructType().add("value", VALUE)

    found = list(rows(town, schema, **options))

    assert [row["value"]["id"] for row in found] == [1, 2]
    expected = (
        b"k",
        b"?",
        [
            ("tidelog.origin.topic", town.topic.encode()),
            ("tidelog.origin.partition", b"0"),
            ("tidelog.origin.offset", b"1"),
            ("tidelog.reason", b"JSON is malformed: invalid character (byte 0)"),
            ("trace", b"7"),
        ],
    )
    assert letters(town, bad) == [expected]
    list(rows(town, schema, **options))
    assert letters(town, bad) == [expected, expected]  # A repeated task writes them again.


def test_a_task_that_ends_early_writes_no_dead_letters(town: SparkFixture) -> None:
    town.create()
    bad = f"{town.topic}-bad"
    town.client.admin.create_topic(bad, 1)
    town.write([b"?", b'{"id":1}'])
    options = {"value_format": "json", "value_badRows": "deadLetter", "value_deadLetterTopic": bad}
    found = rows(town, StructType().add("value", VALUE), **options)

    next(found)
    found.close()  # type: ignore[attr-defined]

    assert letters(town, bad) == []
    assert len(list(rows(town, StructType().add("value", VALUE), **options))) == 1
    assert len(letters(town, bad)) == 1


def test_good_batches_keep_the_staged_dead_letters(
    town: SparkFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad_topic = f"{town.topic}-bad"
    town.client.admin.create_topic(bad_topic)
    town.create()
    town.write([b"?"])
    town.write([b'{"id":1}'])
    options = town.options(
        **{
            "value.format": "json",
            "value.schema": "id bigint",
            "value.badRows": "deadLetter",
            "value.deadLetterTopic": bad_topic,
        }
    )
    of = ValueType.from_spark(StructType().add("id", LongType()).jsonValue())
    schema = arrow_schema(COLUMNS, [COLUMN_TYPES[name] for name in COLUMNS])
    (topic,) = town.client.admin.describe_topics([town.topic])
    slices = [town.whole(topic.topic_id, end, start) for start, end in ((0, 1), (1, 2), (1, 2))]
    batches = (batch for part in slices for batch in read_slice(options, schema, part))
    begun: list[BeginTransactionReply] = []

    def at_once(reply: BeginTransactionReply) -> float:
        begun.append(reply)
        return 0.0

    monkeypatch.setattr(transaction, "_renewed_after_s", at_once)

    counts = [len(begun) for _ in ValueReader(options, ("value",), of).decoded(batches)]

    assert counts[0] < counts[1] < counts[2]


def test_a_large_message_needs_a_dead_letter_topic_that_takes_it(town: SparkFixture) -> None:
    bad = f"{town.topic}-bad"
    limit = 1 << 20
    town.client.admin.create_topic(bad, 1, config={"max_message_bytes": limit})
    town.client.admin.create_queue(town.topic, partitions=1)
    queue = town.client.queue(town.topic)
    queue.send(b"?" * (2 * limit))
    queue.send(b'{"id":1}')
    options = {"value_format": "json", "value_badRows": "deadLetter", "value_deadLetterTopic": bad}
    schema = StructType().add("value", VALUE)

    with pytest.raises(
        ConfigError,
        match=rf"^{town.topic}/0: the bad value at offset \d+ has {2 * limit} bytes, too many"
        rf" for value.deadLetterTopic '{bad}': .*; raise max_message_bytes",
    ):
        list(rows(town, schema, **options))
    assert letters(town, bad) == []
    town.client.admin.alter_topic(bad, set={"max_message_bytes": 4 * limit})
    assert list(rows(town, schema, **options)) == [{"value": {"id": 1, "name": None}}]
    assert [len(value) for _, value, _ in letters(town, bad)] == [2 * limit]


def test_a_plan_needs_another_topic_for_dead_letters_that_exists(town: SparkFixture) -> None:
    town.create()
    schema = StructType().add("value", VALUE)
    options = {"value_format": "json", "value_badRows": "deadLetter"}

    with pytest.raises(UnknownTopicError, match="missing"):
        list(rows(town, schema, value_deadLetterTopic="missing", **options))
    with pytest.raises(ConfigError, match="is read itself"):
        list(rows(town, schema, value_deadLetterTopic=town.topic, **options))


def test_a_topic_that_joins_a_pattern_later_is_no_dead_letter_topic(town: SparkFixture) -> None:
    topic_id = town.create()
    town.write([b"?"])
    options = town.options(
        **{
            "value.format": "json",
            "value.badRows": "deadLetter",
            "value.deadLetterTopic": town.topic,
        }
    )
    of = ValueType.from_spark(VALUE.jsonValue())
    reader = ValueReader(options, ("value",), of)
    schema = arrow_schema(COLUMNS, [COLUMN_TYPES[name] for name in COLUMNS])

    with pytest.raises(ConfigError, match="is read itself"):
        list(reader.decoded(read_slice(options, schema, town.whole(topic_id, 1))))
    assert list(rows(town, StructType().add("value", "binary"))) == [{"value": b"?"}]


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("value binary", {}, r"column value is a struct with value\.format json, not binary"),
        ("badValue", {}, "there is no column 'badValue'"),
        ("badValue", {"value.badRows": "column"}, "needs the column value"),
        ("wrong badValue", {"value.badRows": "column"}, "column badValue is struct<value:binary"),
        ("value", {"value.schema": json.dumps(
            {"type": "object", "properties": {"id": {"type": "string"}}}
        )}, r"value\.id is string in value\.schema, not bigint"),
    ],
)  # fmt: skip
def test_an_invalid_schema_of_a_projection_is_refused(
    schema: str, options: dict[str, str], message: str
) -> None:
    given = {
        "value binary": StructType().add("value", "binary"),
        "badValue": StructType().add(
            "badValue", StructType().add("value", "binary").add("reason", "string")
        ),
        "wrong badValue": StructType().add("value", VALUE).add("badValue", "string"),
        "value": StructType().add("value", VALUE),
    }[schema]
    source = TidelogSource(
        {"bootstrap.servers": "here:1", "subscribe": "a", "value.format": "json", **options}
    )

    with pytest.raises(ConfigError, match=message):
        source.reader(given)


def test_a_history_has_no_values_to_decode() -> None:
    with pytest.raises(ConfigError, match=r"value\.format cannot be used here"):
        TidelogSource(
            {"bootstrap.servers": "here:1", "queueHistory": "q", "value.format": "json"}
        ).schema()


def test_the_option_columns_names_the_column_of_decoded_values_too(town: SparkFixture) -> None:
    town.create()
    town.write([b'{"id":1}', b"?"])
    options = {
        "columns": "offset,value",
        "value.format": "json",
        "value.schema": "id bigint, name string",
    }
    source = TidelogSource(town.raw(**options))
    assert source.schema() == "`offset` bigint, `value` struct<id bigint, name string>"

    with_bad = {**options, "value.badRows": "column"}
    assert TidelogSource(town.raw(**with_bad)).schema().endswith(f", `badValue` {BAD_VALUE}")
    bad = StructType().add("value", "binary").add("reason", "string")
    schema = StructType().add("offset", LongType()).add("value", VALUE).add("badValue", bad)
    assert [row["offset"] for row in rows(town, schema, **with_bad)] == [0, 1]
    with pytest.raises(BadValueError):  # Its columns for the message are not in the option.
        list(rows(town, StructType().add("offset", LongType()).add("value", VALUE), **options))


def test_a_prefix_of_the_values_is_skipped(town: SparkFixture) -> None:
    town.create()
    town.write([b'\0\0\0\0\7{"id":1}'])
    schema = StructType().add("value", VALUE)
    options = {"value_format": "json", "value_skipBytes": "5"}

    assert list(rows(town, schema, **options)) == [{"value": {"id": 1, "name": None}}]
