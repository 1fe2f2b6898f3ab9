"""Tests of the schemas: each kind becomes the same DDL, and what columns cannot have is refused."""

import datetime as dt
import json
from typing import Literal

import msgspec
import pytest
from pydantic import BaseModel

from tidelog.spark_connector.options import GivenOptions
from tidelog.spark_connector.value_options import VALUE_NAMES, ValueFormat, ValueOptions
from tidelog.spark_connector.values.schemas import required_schema, schema_of
from tidelog.spark_connector.values.value_type import ValueType
from tidelog.wire.errors import ConfigError


def ddl(schema: object, value_format: ValueFormat = "json") -> str:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    found = schema_of(ValueOptions(value_format, text))
    assert found is not None
    return found.ddl


@pytest.mark.parametrize("text", ["id BIGINT, name STRING", "struct<id BIGINT, name STRING>"])
def test_ddl_is_for_spark_to_parse(text: str) -> None:
    assert ddl(text) == "struct<id BIGINT, name STRING>"


def test_a_struct_type_in_json_is_understood() -> None:
    schema: dict[str, object] = {
        "type": "struct",
        "fields": [
            {"name": "a`b", "type": "decimal(10,2)", "nullable": False, "metadata": {}},
            {
                "name": "m",
                "type": {
                    "type": "map",
                    "keyType": "string",
                    "valueType": {"type": "array", "elementType": "date", "containsNull": True},
                    "valueContainsNull": True,
                },
                "nullable": True,
                "metadata": {},
            },
        ],
    }

    assert ddl(schema) == "struct<`a``b`:decimal(10,2) NOT NULL,`m`:map<string,array<date>>>"


def test_a_json_schema_gives_columns() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["id", "note"],
        "properties": {
            "id": {"type": "integer"},
            "note": {"type": ["string", "null"]},
            "price": {"type": "number"},
            "paid": {"type": "boolean"},
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "mail": {"type": "string", "format": "email"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "to": {"type": "object", "properties": {"city": {"type": "string"}}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }

    assert ddl(schema, "msgpack") == (
        "struct<`id`:bigint NOT NULL,`note`:string,`price`:double,`paid`:boolean,`at`:timestamp,"
        "`day`:date,`mail`:string,`tags`:array<string>,`to`:struct<`city`:string>,"
        "`counts`:map<string,bigint>>"
    )


class OrderLine(msgspec.Struct):
    """A line of an order."""

    sku: str
    count: int = 1


class Order(msgspec.Struct):
    """An order, as msgspec has it."""

    id: int
    note: str | None
    kind: Literal["a", "b"]
    priority: Literal[1, 2]
    raw: bytes
    lines: list[OrderLine]
    first: OrderLine | None = None


class ModelLine(BaseModel):
    """A line of a model."""

    sku: str
    at: dt.datetime


class Model(BaseModel):
    """An order, as pydantic has it."""

    id: int
    note: str | None
    lines: list[ModelLine]
    by_day: dict[str, ModelLine] | None = None


def test_the_schemas_of_msgspec_and_pydantic_are_understood() -> None:
    line = "struct<`sku`:string NOT NULL,`count`:bigint>"
    assert ddl(msgspec.json.schema(Order)) == (
        "struct<`id`:bigint NOT NULL,`note`:string,`kind`:string NOT NULL,"
        f"`priority`:bigint NOT NULL,`raw`:binary NOT NULL,`lines`:array<{line}> NOT NULL,"
        f"`first`:{line}>"
    )
    line = "struct<`sku`:string NOT NULL,`at`:timestamp NOT NULL>"
    assert ddl(Model.model_json_schema()) == (
        f"struct<`id`:bigint NOT NULL,`note`:string,`lines`:array<{line}> NOT NULL,"
        f"`by_day`:map<string,{line}>>"
    )


_NOTHING: dict[str, object] = {}
_NO_FIELDS: list[object] = []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "value.schema is not JSON"),
        ({"type": "string"}, "must describe an object"),
        ({"type": "object"}, "value needs properties"),
        ({"type": "object", "properties": {"a": _NOTHING}}, r"value\.a must have one type"),
        ({"type": "object", "properties": {"a": {"$ref": "#/x"}}}, "'#/x', which is missing"),
        ({"type": "object", "properties": {"a": {"$ref": "http://x"}}}, "outside of the schema"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "outside of the schema"),
        (
            {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
            r"value\.a contains itself",
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"anyOf": [{"type": "string"}, {"not": _NOTHING}]}},
            },
            r"value\.a has 2 schemas beside null",
        ),
        ({"type": "object", "properties": {"a": {"not": _NOTHING}}}, r"value\.a has not, which"),
        ({"type": "object", "properties": {"a": {"enum": ["a", 1]}}}, r"value\.a must have one"),
        ({"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}, "one type"),
        ({"type": "object", "properties": {"a": {"type": "uuid"}}}, "'uuid'"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, r"value\.a\[\] must be"),
        ({"type": "object", "properties": [1]}, "properties of value"),
        ({"type": "record", "name": "R", "fields": _NO_FIELDS}, "is an Avro schema"),
        ({"type": "struct", "fields": [{"name": "a"}]}, "not the JSON of a StructType"),
        ({"type": "struct", "fields": _NO_FIELDS}, "no fields"),
        (
            {
                "type": "struct",
                "fields": [{"name": "a", "type": "variant", "nullable": True}] * 2,
            },
            r"value\.a has the type 'variant'",
        ),
        (
            {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True}] * 2},
            "a field twice",
        ),
    ],
)
def test_a_schema_that_columns_cannot_have_is_refused(schema: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        ddl(schema)
    assert "\n" not in str(refused.value)


def record(*fields: object, name: str = "R", **more: object) -> dict[str, object]:
    listed = [{"name": f"f{index}", "type": kind} for index, kind in enumerate(fields)]
    return {"type": "record", "name": name, "fields": listed, **more}


def test_an_avro_schema_gives_columns_and_resolves_names_in_their_namespace() -> None:
    inner = record("int", name="Inner", namespace="other")
    schema = record(
        "long",
        ["null", "string"],
        {"type": "enum", "name": "E", "symbols": ["A"]},
        ["E", "null"],
        "shop.E",
        inner,
        ["null", "other.Inner"],
        {"type": "array", "items": ["null", "double"]},
        {"type": "map", "values": "bytes"},
        {"type": "long", "logicalType": "timestamp-millis"},
        namespace="shop",
    )

    assert ddl(schema, "avro") == (
        "struct<`f0`:bigint NOT NULL,`f1`:string,`f2`:string NOT NULL,`f3`:string,"
        "`f4`:string NOT NULL,`f5`:struct<`f0`:int NOT NULL> NOT NULL,"
        "`f6`:struct<`f0`:int NOT NULL>,`f7`:array<double> NOT NULL,"
        "`f8`:map<string,binary> NOT NULL,`f9`:timestamp NOT NULL>"
    )


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id bigint", "is not JSON"),
        ({"type": "string"}, "must be an Avro record, not string"),
        (record(["null", "R"]), r"value\.f0 has the Avro type 'R'.*contains itself"),
        (record("null"), "null"),
        (record({"type": "array", "items": "null"}), r"value\.f0\[\]"),
        (record(["int", "string"]), "union of 2 types beside null"),
        (record(), "no fields"),
        (record(7), "no Avro schema"),
        (record({"type": "fixed", "name": "F", "size": 0}), "fixed of the size 0"),
        (record({"type": "bytes", "logicalType": "decimal"}), "decimal without precision"),
        (
            record({"type": "bytes", "logicalType": "decimal", "precision": 50}),
            "Spark has up to 38",
        ),
        ({"type": "record", "fields": _NO_FIELDS}, "has no name"),
        ({"type": "record", "name": "R"}, "without a list of fields"),
        ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "no name or no type"),
        ({"type": "record", "name": "R", "fields": ["a"]}, "no name or no type"),
        (record({"type": "enum", "name": "E"}), r"value\.f0 is an Avro enum without a list"),
    ],
)
def test_an_avro_schema_that_columns_cannot_have_is_refused(schema: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ddl(schema, "avro")


def test_a_schema_is_required_where_nothing_else_says_the_columns() -> None:
    assert schema_of(ValueOptions("json")) is None
    with pytest.raises(ConfigError, match=r"value\.format json needs value\.schema"):
        required_schema(ValueOptions("json"))
    with pytest.raises(ConfigError, match=r"avro needs value\.schema: the Avro schema"):
        schema_of(ValueOptions("avro"))


def test_a_selection_of_fields_takes_the_units_of_the_encoding() -> None:
    found = schema_of(
        ValueOptions(
            "avro", json.dumps(record("int", {"type": "long", "logicalType": "timestamp-millis"}))
        )
    )
    assert found is not None
    assert found.type is not None

    def wanted(name: str, kind: str) -> ValueType:
        fields = [{"name": name, "type": kind, "nullable": True}]
        return ValueType.from_spark({"type": "struct", "fields": fields})

    chosen = wanted("f1", "timestamp").encoded_as(found.type)
    assert [(each.name, each.type.unit, each.is_nullable) for each in chosen.fields] == [
        ("f1", "ms", True)
    ]
    with pytest.raises(ConfigError, match=r"value\.schema has no field 'f2'; it has f0, f1"):
        wanted("f2", "timestamp").encoded_as(found.type)
    with pytest.raises(ConfigError, match=r"value\.f0 is int in value\.schema, not bigint"):
        wanted("f0", "long").encoded_as(found.type)


def options(**given: str) -> ValueOptions:
    named = {f"value.{name}": value for name, value in given.items()}
    return ValueOptions.parse(GivenOptions(named, VALUE_NAMES))


def test_options_are_parsed() -> None:
    assert options() == ValueOptions()
    assert options(format="JSON", schema="id int") == ValueOptions("json", "id int")
    assert options(format="json", badRows="deadletter", deadLetterTopic="bad") == ValueOptions(
        "json", None, "deadLetter", "bad"
    )
    assert options(format="avro", skipBytes="5").skip_bytes == 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "xml"}, "value.format must be raw or json or msgpack or avro, not 'xml'"),
        ({"skipBytes": "5"}, "value.skipBytes needs a value.format"),
        ({"format": "json", "skipBytes": "-1"}, "value.skipBytes must be at least 0"),
        ({"schema": "id int"}, "value.schema needs a value.format other than raw"),
        ({"format": "json", "badRows": "deadLetter"}, "go together"),
        ({"format": "json", "deadLetterTopic": "x"}, "go together"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        options(**given)
