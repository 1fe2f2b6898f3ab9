"""Tests of the decoders: exact columns, and bad rows told apart with a reason."""

import datetime as dt
import io
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import msgspec
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark_connector.value_options import ValueFormat, ValueOptions
from tidelog.spark_connector.values.decoders import DecodedValues, ValueDecoder, avro_package
from tidelog.spark_connector.values.schemas import schema_of
from tidelog.spark_connector.values.value_columns import arrow_type
from tidelog.spark_connector.values.value_type import ValueField, ValueType
from tidelog.wire.errors import ConfigError


def struct(**fields: object) -> ValueType:
    return ValueType.from_spark(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True} for name, kind in fields.items()
            ],
        }
    )


def array(of: object) -> dict[str, object]:
    return {"type": "array", "elementType": of, "containsNull": True}


def mapping(key: object, of: object) -> dict[str, object]:
    return {"type": "map", "keyType": key, "valueType": of, "valueContainsNull": True}


def decoded(
    values: Sequence[bytes | None], of: ValueType, value_format: ValueFormat = "json"
) -> DecodedValues:
    found = ValueDecoder(value_format, of).decode(pa.array(values, pa.binary()))
    found.column.validate(full=True)
    assert found.column.type == arrow_type(of)
    assert len(found.column) == len(values)
    return found


EVERYTHING = struct(
    flag="boolean",
    tiny="byte",
    small="short",
    int="integer",
    long="long",
    float="float",
    double="double",
    text="string",
    raw="binary",
    day="date",
    at="timestamp",
    local="timestamp_ntz",
    money="decimal(10,2)",
    tags=array("string"),
    counts=mapping("string", "long"),
    lines=array(
        {"type": "struct", "fields": [{"name": "sku", "type": "string", "nullable": False}]}
    ),
)
ROW = {
    "flag": True,
    "tiny": -128,
    "small": 32_767,
    "int": -(1 << 31),
    "long": (1 << 63) - 1,
    "float": 0.5,
    "double": 1e300,
    "text": "ö\u0000",
    "raw": b"\xff",
    "day": dt.date(2026, 11, 28),
    "at": dt.datetime(2026, 11, 28, 1, 50, 0, 123_456, tzinfo=dt.UTC),
    "local": dt.datetime(2026, 11, 28, 1, 50),  # noqa: DTZ001 (a time without zone)
    "money": Decimal("12345678.90"),
    "tags": ["a", None],
    "counts": {"a": 1, "b": None},
    "lines": [{"sku": "x"}, {"sku": ""}, None],
}


def as_python(found: DecodedValues) -> list[Any]:
    rows = found.column.to_pylist()
    for row in rows:
        if row is not None and row.get("counts") is not None:
            row["counts"] = dict(row["counts"])
    return rows


@pytest.mark.parametrize("value_format", ["json", "msgpack"])
def test_every_type_is_decoded_exactly_and_a_missing_field_is_null(
    value_format: ValueFormat,
) -> None:
    encode = (msgspec.json if value_format == "json" else msgspec.msgpack).encode
    nothing = dict.fromkeys(ROW)

    found = decoded(
        [encode(ROW), encode({**ROW, "other": [{}]}), encode({}), encode(nothing), None],
        EVERYTHING,
        value_format,
    )

    assert found.bad == []
    assert as_python(found) == [ROW, ROW, nothing, nothing, None]


@pytest.mark.parametrize("value_format", ["json", "msgpack"])
def test_a_float_takes_what_rounds_to_it_and_nothing_larger(value_format: ValueFormat) -> None:
    encode = (msgspec.json if value_format == "json" else msgspec.msgpack).encode
    of = struct(one="float", many=array("float"), named=mapping("string", "float"))
    largest = 3.4028235e38  # As Java writes it: above the largest float, which is nearest.
    good = {"one": -largest, "many": [largest, None], "named": {"a": largest}}
    bad = [{"one": 3.41e38}, {"many": [1.0, -1e39]}, {"named": {"a": 1e300}}]

    found = decoded([encode(each) for each in (good, *bad)], of, value_format)

    row = found.column[0].as_py()
    assert row["one"] == -3.4028234663852886e38
    assert row["many"] == [3.4028234663852886e38, None]
    assert [each.row for each in found.bad] == [1, 2, 3]
    assert "does not fit a float" in found.bad[2].reason


def test_an_infinity_of_messagepack_stays_one() -> None:
    found = decoded([msgspec.msgpack.encode({"x": float("inf")})], struct(x="float"), "msgpack")

    assert found.bad == []
    assert found.column.to_pylist() == [{"x": float("inf")}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b'{"id":1} x', "trailing characters"),
        (b'{"id":1}{"id":2}', "trailing characters"),
        (b"[1]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b'{"id":"1"}', r"Expected `int \| null`, got `str` - at `\$\.id`"),
        (b'{"id":1.5}', "got `float`"),
        (b'{"id":true}', "got `bool`"),
        (b'{"id":9223372036854775808}', "<= 9223372036854775807"),
        (b'{"name":"\xff"}', "utf-8"),
        (b'{"name":"\\ud800"}', ""),
        (b'{"small":1e39}', r"1e\+39 does not fit a float"),
        (b'{"at":"2026-11-28T01:50:00"}', "timezone"),
        (b'{"at":1700000000}', "datetime"),
        (b'{"money":"1.255"}', "Decimal"),
        (b'{"money":123456}', "ecimal"),
        (b'{"money":"NaN"}', ""),
        (b'{"other":' + b'{"x":' * 100_000, "recursion"),
    ],
)
def test_a_bad_value_does_not_change_its_neighbours(value: bytes, reason: str) -> None:
    of = struct(id="long", name="string", small="float", at="timestamp", money="decimal(5,2)")
    good = [b'{"id":%d,"money":"%d.25"}' % (number, number) for number in range(5)]

    found = decoded([*good[:2], value, *good[2:], value], of)

    assert [each.row for each in found.bad] == [2, 6]
    assert all(re.search(reason, each.reason) for each in found.bad)
    assert all(each.reason and "\n" not in each.reason for each in found.bad)
    rows = found.column.to_pylist()
    assert rows[2] is rows[6] is None
    assert [row["id"] for row in rows if row] == [0, 1, 2, 3, 4]


def test_a_missing_field_that_is_not_null_is_bad() -> None:
    of = ValueType("struct", (ValueField("id", ValueType("bigint"), is_nullable=False),))

    found = decoded([b'{"id":1}', b"{}", b'{"id":null}'], of)

    assert [(each.row, each.reason) for each in found.bad] == [
        (1, "Object missing required field `id`"),
        (2, "Expected `int`, got `null` - at `$.id`"),
    ]
    assert found.column.to_pylist() == [{"id": 1}, None, None]


def test_the_keys_of_a_json_map_are_text_or_whole_numbers() -> None:
    found = decoded([b'{"m":{"7":1}}', b'{"m":{"x":1}}'], struct(m=mapping("integer", "long")))

    assert found.column.to_pylist() == [{"m": [(7, 1)]}, None]
    with pytest.raises(ConfigError, match=r"keys of value\.m are strings in JSON"):
        ValueDecoder("json", struct(m=mapping("double", "long")))


_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.binary(max_size=12),
            st.dictionaries(st.sampled_from(["id", "tags", "in"]), _JSON).map(
                lambda row: json.dumps(row).encode()
            ),
        ),
        max_size=8,
    )
)
def test_each_row_is_decoded_as_if_it_were_alone(values: list[bytes | None]) -> None:
    of = struct(
        id="integer",
        tags=array("string"),
        **{"in": {"type": "struct", "fields": [{"name": "x", "type": "double", "nullable": True}]}},
    )

    together = decoded(values, of)
    alone = [decoded([value], of) for value in values]

    assert together.column.to_pylist() == [each.column.to_pylist()[0] for each in alone]
    assert [(each.row, each.reason) for each in together.bad] == [
        (row, each.reason) for row, found in enumerate(alone) for each in found.bad
    ]


# Avro

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "small", "type": "int"},
        {"name": "ratio", "type": "float"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": ["null", "Kind"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": [{"type": "long", "logicalType": "timestamp-micros"}, "null"]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "ns", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "money",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
                    ],
                },
            },
        },
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ],
}
MOMENT = dt.datetime(2026, 11, 28, 1, 50, 0, 123_000, tzinfo=dt.UTC)
AVRO_ROW: dict[str, Any] = {
    "id": 7,
    "text": None,
    "small": -5,
    "ratio": 0.5,
    "kind": "B",
    "again": "A",
    "hash": b"\x00\xff",
    "day": dt.date(2026, 11, 28),
    "ms": MOMENT,
    "us": MOMENT.replace(microsecond=123_456),
    "local": MOMENT.replace(tzinfo=None),
    "ns": 1_700_000_000_000_000_001,
    "uuid": "0d7d8f0c-5b3a-4c57-8b7d-3a3c1f3a8c11",
    "money": Decimal("-1234.50"),
    "lines": [{"at": MOMENT}],
    "counts": {"a": 1},
}


def avro_bytes(row: dict[str, Any], schema: dict[str, Any] = AVRO) -> bytes:
    stream = io.BytesIO()
    fastavro = avro_package()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def avro_decoder(schema: dict[str, Any] = AVRO) -> tuple[ValueDecoder, ValueType]:
    found = schema_of(ValueOptions("avro", json.dumps(schema)))
    assert found is not None
    assert found.type is not None
    return ValueDecoder("avro", found.type, found.avro), found.type


def test_avro_is_decoded_by_its_schema_and_bad_values_are_told_apart() -> None:
    decoder, of = avro_decoder()
    good = avro_bytes(AVRO_ROW)

    found = decoder.decode(pa.array([good, b"", None, good + b"\0", good[:-1], good], pa.binary()))

    found.column.validate(full=True)
    assert found.column.type == arrow_type(of)
    rows = as_python(found)
    assert rows == [AVRO_ROW, None, None, None, None, AVRO_ROW]
    assert [each.row for each in found.bad] == [1, 3, 4]
    assert found.bad[1].reason == "1 bytes follow the record; the schema is another"


def test_bytes_before_the_encoded_value_are_skipped() -> None:
    schema = schema_of(ValueOptions("avro", json.dumps(AVRO)))
    assert schema is not None
    assert schema.type is not None
    decoder = ValueDecoder("avro", schema.type, schema.avro, skip_bytes=5)
    good = avro_bytes(AVRO_ROW)

    found = decoder.decode(pa.array([b"\0\0\0\0\7" + good, good, b"\0\0\0"], pa.binary()))

    assert as_python(found) == [AVRO_ROW, None, None]
    assert [each.row for each in found.bad] == [1, 2]
    assert found.bad[1].reason == "it has 3 bytes, and value.skipBytes is 5"


@pytest.mark.parametrize("name", ["E", "R"])
def test_an_avro_schema_that_avro_refuses_is_a_wrong_option(name: str) -> None:
    symbols = ["a b"] if name == "E" else ["a"]
    kind = {"type": "enum", "name": name, "symbols": symbols}
    record = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    schema = schema_of(ValueOptions("avro", json.dumps(record)))
    assert schema is not None
    assert schema.type is not None

    with pytest.raises(ConfigError, match=r"^value\.schema is no Avro schema: .*(symbol|named)"):
        ValueDecoder("avro", schema.type, schema.avro)


def test_an_avro_number_outside_of_its_column_is_a_bad_value() -> None:
    decoder, _ = avro_decoder(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "n", "type": "int"},
            ],
        }
    )
    long = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "at", "type": "long"}, {"name": "n", "type": "long"}],
    }

    found = decoder.decode(
        pa.array(
            [
                avro_bytes({"at": at, "n": n}, long)
                for at, n in [(0, 0), (1 << 62, 0), (0, 1 << 40), (5, 5)]
            ],
            pa.binary(),
        )
    )

    assert [each.row for each in found.bad] == [1, 2]
    assert [None if row is None else row["n"] for row in found.column.to_pylist()] == [
        0, None, None, 5,
    ]  # fmt: skip


def test_a_process_without_memory_is_not_taken_for_a_bad_value() -> None:
    decoder, _ = avro_decoder()
    decoder._decode = _without_memory  # pyright: ignore[reportPrivateUsage]

    with pytest.raises(MemoryError):
        decoder.decode(pa.array([avro_bytes(AVRO_ROW)], pa.binary()))


def _without_memory(value: bytes) -> None:
    raise MemoryError(len(value))
