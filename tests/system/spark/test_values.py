"""Tests of decoded values: a struct with the columns of a schema, in batches and streams."""

import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException

from tests.system.spark.world import World
from tidelog.spark_connector.values.decoders import avro_package

AT = dt.datetime(2026, 11, 28, 1, 50, 0, 123_000, tzinfo=dt.UTC)
ROW: dict[str, Any] = {
    "id": 7,
    "name": "a",
    "at": AT,
    "lines": [{"sku": "x", "count": 2}],
    "counts": {"k": 1},
}
DDL = (
    "id BIGINT NOT NULL, name STRING, at TIMESTAMP, lines ARRAY<STRUCT<sku: STRING, count: INT>>,"
    " counts MAP<STRING, BIGINT>"
)
JSON_SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}},
            },
        },
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "count", "type": "int"},
                    ],
                },
            },
        },
        {"name": "counts", "type": {"type": "map", "values": "long"}},
    ],
}


def avro_bytes(row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro = avro_package()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), row)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("value_format", "schema", "value"),
    [
        ("json", DDL, msgspec.json.encode(ROW)),
        ("json", json.dumps(JSON_SCHEMA), msgspec.json.encode(ROW)),
        ("msgpack", DDL, msgspec.msgpack.encode(ROW)),
        ("avro", json.dumps(AVRO), avro_bytes(ROW)),
    ],
    ids=["json-ddl", "json-schema", "msgpack", "avro"],
)
def test_values_are_decoded_to_the_columns_of_a_schema(
    world: World, value_format: str, schema: str, value: bytes
) -> None:
    world.create()
    world.write([value, None, value])
    options = {"value.format": value_format, "value.schema": schema}

    table = world.load(**options)
    rows = table.orderBy("offset").selectExpr(
        "value.id", "value.name", "unix_millis(value.at) AS at", "value.lines[0].sku AS sku",
        "value.lines[0].count AS count", "value.counts['k'] AS k", "offset",
    ).collect()  # fmt: skip

    expected = (7, "a", AT.timestamp() * 1000, "x", 2, 1)
    assert [tuple(row) for row in rows] == [(*expected, 0), (*[None] * 6, 1), (*expected, 2)]
    assert table.where("value is null").count() == 1
    assert table.where("value.id = 7").count() == 2


def test_raw_values_stay_binary_and_a_struct_needs_a_schema(world: World) -> None:
    world.create()
    world.write([b"a"])

    assert world.values(**{"value.format": "raw"}) == [b"a"]
    with pytest.raises(PySparkException, match=r"value\.format json needs value\.schema"):
        world.load(**{"value.format": "json"})


def test_a_declared_column_is_the_schema_and_reads_some_of_the_fields(world: World) -> None:
    world.create()
    world.write([msgspec.json.encode(ROW), avro_bytes(ROW)])
    declared = "offset long, value struct<name: string, id: bigint>"
    json_rows = {"value.format": "json", "endingOffsets": world.offsets(1)}
    avro_rows = {
        "value.format": "avro",
        "value.schema": json.dumps(AVRO),
        "startingOffsets": world.offsets(1),
    }

    for options, offset in ((json_rows, 0), (avro_rows, 1)):
        (row,) = world.load(declared, **options).collect()
        assert row.asDict(recursive=True) == {"offset": offset, "value": {"name": "a", "id": 7}}


def test_bad_values_end_the_query_or_go_to_a_column_or_a_topic(world: World) -> None:
    world.create()
    world.write([b'{"id":1}', b"?", b'{"id":2}'])
    bad = f"{world.topic}-bad"
    world.client.admin.create_topic(bad, 1)
    options = {"value.format": "json", "value.schema": "id bigint"}

    with pytest.raises(PySparkException, match="the value at offset 1 does not match the schema"):
        world.load(**options).collect()
    in_a_column = world.load(**options, **{"value.badRows": "column"})
    assert [
        (row.id, bytes(row.bad) if row.bad else None)
        for row in in_a_column.orderBy("offset")
        .selectExpr("value.id", "badValue.value AS bad")
        .collect()
    ] == [(1, None), (None, b"?"), (2, None)]
    in_a_topic = {"value.badRows": "deadLetter", "value.deadLetterTopic": bad}
    assert [row.value.id for row in world.load(**options, **in_a_topic).collect()] == [1, 2]
    assert world.named(bad).values() == [b"?"]


def test_a_stream_decodes_values_and_writes_bad_ones_to_a_topic(
    world: World, tmp_path: Path
) -> None:
    world.create()
    bad = f"{world.topic}-bad"
    world.client.admin.create_topic(bad, 1)
    world.write([b'{"id":1}', b"?"])
    table = world.stream(
        **{
            "value.format": "json",
            "value.schema": "id bigint",
            "value.badRows": "deadLetter",
            "value.deadLetterTopic": bad,
        }
    )

    query = (
        table.select("value.id", "topic")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    query.awaitTermination(120)

    assert query.exception() is None
    assert [row.id for row in world.spark.read.parquet(str(tmp_path / "rows")).collect()] == [1]
    assert world.named(bad).values() == [b"?"]
