"""Schemas of values: DDL of Spark, JSON Schema, the JSON of a `StructType`, and Avro.

Pure: no pyspark, no pyarrow, no fastavro.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast, final

from tidelog.spark_connector.value_options import FORMAT, SCHEMA, ValueOptions
from tidelog.spark_connector.values.value_type import Kind, ValueField, ValueType
from tidelog.wire.errors import ConfigError

_STRUCT: Final = re.compile(r"\s*struct\s*<(.*)>\s*", re.DOTALL | re.IGNORECASE)
_HINT: Final = 'for example .option("value.schema", "id bigint, name string")'


class ValueSchema(NamedTuple):
    """Schema of values: its DDL, and its type where tidelog parses the schema itself."""

    ddl: str
    """The type of the column `value`."""
    type: ValueType | None
    """`None` if only Spark can parse the schema, which is DDL then."""
    avro: object = None
    """The Avro schema, without the logical types that fastavro need not convert."""


def schema_of(options: ValueOptions) -> ValueSchema | None:
    """Return the schema that `value.schema` has; `None` if it is not given.

    Raises:
        ConfigError: The schema is invalid, or the format needs another kind of schema.
    """
    text = options.schema
    if text is None:
        if options.format == "avro":
            raise ConfigError(f"{FORMAT} avro needs {SCHEMA}: the Avro schema of the producers")
        return None
    if options.format == "avro":
        return _avro(_json(text))
    if not text.startswith("{"):
        inside = _STRUCT.fullmatch(text)
        return ValueSchema(f"struct<{inside[1] if inside else text}>", None)
    given = cast("dict[str, Any]", _json(text))  # The text begins with a brace.
    if given.get("type") == "record":
        raise ConfigError(f"{SCHEMA} is an Avro schema; set {FORMAT} to avro, or give another")
    if given.get("type") == "struct":
        kind = _of_spark(given)
    else:
        kind, _ = _JsonSchema(given).read(given, "value")
        if kind.kind != "struct":
            raise ConfigError(f"{SCHEMA} must describe an object with properties; {_HINT}")
    return ValueSchema(kind.ddl(), kind)


def required_schema(options: ValueOptions) -> ValueSchema:
    """Return the schema that `value.schema` has.

    Raises:
        ConfigError: As `schema_of`, or the schema is not given.
    """
    found = schema_of(options)
    if found is None:
        raise ConfigError(
            f"{FORMAT} {options.format} needs {SCHEMA}, {_HINT}; or declare the column,"
            ' for example .schema("value struct<id: bigint>, offset bigint")'
        )
    return found


def _json(text: str) -> object:
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{SCHEMA} is not JSON: {error}") from error


def _of_spark(found: Mapping[str, Any]) -> ValueType:
    try:
        return ValueType.from_spark(found)
    except (KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{SCHEMA} is not the JSON of a StructType: {error!r} in it") from error


# JSON Schema

_JSON_LEAVES: Final[Mapping[object, Kind]] = {
    "string": "string",
    "integer": "bigint",
    "number": "double",
    "boolean": "boolean",
}
_JSON_FORMATS: Final[Mapping[object, Kind]] = {"date-time": "timestamp", "date": "date"}
_REFUSED: Final = ("patternProperties", "prefixItems", "not", "if")
_UNIONS: Final = ("anyOf", "oneOf", "allOf")
_NULL: Final = "null"


@final
@dataclass(frozen=True, slots=True)
class _JsonSchema:
    """Reader of a JSON Schema, as far as columns can have it.

    That includes what pydantic and msgspec write for classes: references, and `anyOf` with null.
    """

    root: Mapping[str, Any]

    def read(
        self, found: object, where: str, inside: tuple[str, ...] = ()
    ) -> tuple[ValueType, bool]:
        """Return the type, and whether it permits null; `inside` are the references on the way.

        Raises:
            ConfigError: The schema is invalid, or no column can have its values.
        """
        if not isinstance(found, dict):
            raise ConfigError(f"{SCHEMA}: {where} must be a JSON object, not {found!r}")
        given = cast("dict[str, Any]", found)
        for refused in _REFUSED:
            if refused in given:
                raise ConfigError(
                    f"{SCHEMA}: {where} has {refused}, which columns cannot have; use DDL"
                )
        if "$ref" in given:
            return self._referenced(given["$ref"], where, inside)
        for union in _UNIONS:
            if union in given:
                return self._one_of(given[union], where, inside)
        names: object = given.get("type", _type_of_enum(given.get("enum")))
        listed = cast("list[object]", names) if isinstance(names, list) else [names]
        others = [name for name in listed if name != _NULL]
        if len(others) != 1 or others == [None]:
            raise ConfigError(f"{SCHEMA}: {where} must have one type beside null, not {names!r}")
        return self._typed(others[0], given, where, inside=inside), len(listed) > 1

    def _typed(
        self, name: object, given: Mapping[str, Any], where: str, *, inside: tuple[str, ...]
    ) -> ValueType:
        if name == "array":
            element, nullable = self.read(given.get("items"), f"{where}[]", inside)
            return ValueType("array", (ValueField("element", element, nullable),))
        if name == "object":
            return self._object(given, where, inside)
        if name == "string" and given.get("contentEncoding") == "base64":
            return ValueType("binary")
        kind = _JSON_LEAVES.get(name) if isinstance(name, str) else None
        if kind is None:
            raise ConfigError(f"{SCHEMA}: {where} has the type {name!r}, which JSON does not have")
        return ValueType(
            _JSON_FORMATS.get(str(given.get("format")), kind) if kind == "string" else kind
        )

    def _referenced(
        self, reference: object, where: str, inside: tuple[str, ...]
    ) -> tuple[ValueType, bool]:
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise ConfigError(f"{SCHEMA}: {where} refers to {reference!r}, outside of the schema")
        if reference in inside:
            raise ConfigError(f"{SCHEMA}: {where} contains itself, which columns cannot have")
        found: object = self.root
        for step in reference.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            inner = cast("dict[str, object]", found) if isinstance(found, dict) else {}
            if name not in inner:
                raise ConfigError(f"{SCHEMA}: {where} refers to {reference!r}, which is missing")
            found = inner[name]
        return self.read(found, where, (*inside, reference))

    def _one_of(self, found: object, where: str, inside: tuple[str, ...]) -> tuple[ValueType, bool]:
        listed = cast("list[object]", found) if isinstance(found, list) else []
        others = [each for each in listed if each != {"type": _NULL}]
        if len(others) != 1:
            raise ConfigError(
                f"{SCHEMA}: {where} has {len(others)} schemas beside null; columns have one"
            )
        kind, is_nullable = self.read(others[0], where, inside)
        return kind, is_nullable or len(listed) > 1

    def _object(self, given: Mapping[str, Any], where: str, inside: tuple[str, ...]) -> ValueType:
        properties = given.get("properties")
        if not properties:
            inner: object = given.get("additionalProperties")
            if not isinstance(inner, dict):
                raise ConfigError(
                    f"{SCHEMA}: {where} needs properties, or a schema as additionalProperties"
                )
            value, nullable = self.read(cast("object", inner), f"{where}{{}}", inside)
            key = ValueField("key", ValueType("string"), is_nullable=False)
            return ValueType("map", (key, ValueField("value", value, nullable)))
        if not isinstance(properties, dict):
            raise ConfigError(f"{SCHEMA}: properties of {where} must be a JSON object")
        required = given.get("required", [])
        if not isinstance(required, list):
            raise ConfigError(f"{SCHEMA}: required of {where} must be a list of names")
        fields: list[ValueField] = []
        for name, of_field in cast("dict[str, object]", properties).items():
            kind, nullable = self.read(of_field, f"{where}.{name}", inside)
            fields.append(ValueField(name, kind, nullable or name not in required))
        return ValueType.struct(fields, f"{SCHEMA}: {where}")


def _type_of_enum(values: object) -> str | None:
    """Return the JSON type of the values of an enumeration without a type."""
    listed = cast("list[object]", values) if isinstance(values, list) else []
    if listed and all(isinstance(each, str) for each in listed):
        return "string"
    return "integer" if listed and all(type(each) is int for each in listed) else None


# Avro

_Read = tuple[ValueType, object]
"""Type of a schema, and the schema without logical types."""
_AVRO_LEAVES: Final[Mapping[str, Kind]] = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_AVRO_LOGICAL: Final[Mapping[tuple[str, str], ValueType]] = {
    ("int", "date"): ValueType("date"),
    ("long", "timestamp-millis"): ValueType("timestamp", unit="ms"),
    ("long", "timestamp-micros"): ValueType("timestamp"),
    ("long", "local-timestamp-millis"): ValueType("timestamp_ntz", unit="ms"),
    ("long", "local-timestamp-micros"): ValueType("timestamp_ntz"),
}
_DECIMAL_DIGITS_MAX: Final = 38


def _avro(found: object) -> ValueSchema:
    avro = _Avro({})
    kind, cleaned, _ = avro.read(found, "value", "")
    if kind.kind != "struct":
        raise ConfigError(f"{SCHEMA} must be an Avro record, not {kind.kind}")
    return ValueSchema(kind.ddl(), kind, cleaned)


@final
@dataclass(frozen=True, slots=True)
class _Avro:
    """Reader of an Avro schema.

    It removes the logical types whose numbers Arrow takes as they are, and those that columns do
    not have: Avro says that readers ignore what they do not know.
    """

    types: dict[str, ValueType]
    """Types by full name; a record is not there before its end, so it cannot contain itself."""

    def read(self, found: object, where: str, namespace: str) -> tuple[ValueType, object, bool]:
        """Return the type of a schema, the schema without logical types, and whether it has null.

        Raises:
            ConfigError: The schema is invalid, or no column can have its values.
        """
        if isinstance(found, list):
            return self._union(cast("list[object]", found), where, namespace)
        if isinstance(found, str):
            return *self._by_name(found, where, namespace), False
        if not isinstance(found, dict):
            raise ConfigError(f"{SCHEMA}: {where} is no Avro schema: {found!r}")
        given = cast("dict[str, Any]", found)
        kind = given.get("type")
        readers: Mapping[object, Callable[[dict[str, Any], str, str], _Read]] = {
            "record": self._record,
            "enum": self._enum,
            "fixed": self._fixed,
            "array": self._array,
            "map": self._map,
        }
        if isinstance(kind, str) and kind in readers:
            return *readers[kind](given, where, namespace), False
        if kind == "bytes" and given.get("logicalType") == "decimal":
            return _decimal(given, where), given, False
        logical = _AVRO_LOGICAL.get((str(kind), str(given.get("logicalType"))))
        return self.read(kind, where, namespace) if logical is None else (logical, kind, False)

    def _by_name(self, found: str, where: str, namespace: str) -> "_Read":
        if found in _AVRO_LEAVES:
            return ValueType(_AVRO_LEAVES[found]), found
        name = found if "." in found or not namespace else f"{namespace}.{found}"
        if name not in self.types:
            raise ConfigError(
                f"{SCHEMA}: {where} has the Avro type {found!r}, which is not known, null, or"
                " contains itself"
            )
        return self.types[name], name

    def _union(
        self, found: list[object], where: str, namespace: str
    ) -> tuple[ValueType, object, bool]:
        others = [each for each in found if each != "null"]
        if len(others) != 1:
            raise ConfigError(
                f"{SCHEMA}: {where} is a union of {len(others)} types beside null; columns have one"
            )
        kind, cleaned, _ = self.read(others[0], where, namespace)
        return kind, ["null" if each == "null" else cleaned for each in found], "null" in found

    def _record(self, given: dict[str, Any], where: str, namespace: str) -> "_Read":
        name, space = _full_name(given, namespace)
        fields: list[ValueField] = []
        cleaned: list[object] = []
        listed = given.get("fields")
        if not isinstance(listed, list):
            raise ConfigError(f"{SCHEMA}: {where} is an Avro record without a list of fields")
        for field in cast("Sequence[object]", listed):
            each = cast("dict[str, Any]", field) if isinstance(field, dict) else {}
            if not isinstance(each.get("name"), str) or "type" not in each:
                raise ConfigError(f"{SCHEMA}: a field of {where} has no name or no type")
            kind, inner, has_null = self.read(each["type"], f"{where}.{each['name']}", space)
            fields.append(ValueField(each["name"], kind, has_null))
            cleaned.append({"name": each["name"], "type": inner})
        found = ValueType.struct(fields, f"{SCHEMA}: {where}")
        schema = {"type": "record", "name": name, "fields": cleaned}
        self.types[name] = found
        return found, schema

    def _enum(self, given: dict[str, Any], where: str, namespace: str) -> "_Read":
        symbols = given.get("symbols")
        if not isinstance(symbols, list):
            raise ConfigError(f"{SCHEMA}: {where} is an Avro enum without a list of symbols")
        name, _ = _full_name(given, namespace)
        self.types[name] = ValueType("string")
        return self.types[name], {"type": "enum", "name": name, "symbols": symbols}

    def _fixed(self, given: dict[str, Any], where: str, namespace: str) -> "_Read":
        size = given.get("size")
        if type(size) is not int or size < 1:
            raise ConfigError(f"{SCHEMA}: {where} is an Avro fixed of the size {size!r}")
        name, _ = _full_name(given, namespace)
        cleaned: dict[str, object] = {"type": "fixed", "name": name, "size": size}
        self.types[name] = ValueType("binary")
        if given.get("logicalType") == "decimal":
            self.types[name] = found = _decimal(given, where)
            cleaned |= {
                "logicalType": "decimal",
                "precision": found.precision,
                "scale": found.scale,
            }
        return self.types[name], cleaned

    def _array(self, given: dict[str, Any], where: str, namespace: str) -> tuple[ValueType, object]:
        kind, cleaned, _ = self.read(given.get("items"), f"{where}[]", namespace)
        # DDL has no arrays of elements that are not null.
        return ValueType("array", (ValueField("element", kind),)), {
            "type": "array",
            "items": cleaned,
        }

    def _map(self, given: dict[str, Any], where: str, namespace: str) -> "_Read":
        kind, cleaned, _ = self.read(given.get("values"), f"{where}{{}}", namespace)
        key = ValueField("key", ValueType("string"), is_nullable=False)
        return ValueType("map", (key, ValueField("value", kind))), {
            "type": "map",
            "values": cleaned,
        }


def _full_name(given: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return full name and namespace of a named type."""
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{SCHEMA}: an Avro {given['type']} has no name")
    space = given.get("namespace", namespace)
    if "." in name:
        return name, name.rpartition(".")[0]
    return (f"{space}.{name}" if space else name), space or ""


def _decimal(given: Mapping[str, Any], where: str) -> ValueType:
    precision, scale = given.get("precision"), given.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        raise ConfigError(f"{SCHEMA}: {where} is a decimal without precision")
    if not 0 <= scale <= precision <= _DECIMAL_DIGITS_MAX or not precision:
        raise ConfigError(
            f"{SCHEMA}: {where} is a decimal({precision},{scale}), Spark has up to"
            f" {_DECIMAL_DIGITS_MAX} digits"
        )
    return ValueType("decimal", precision=precision, scale=scale)
