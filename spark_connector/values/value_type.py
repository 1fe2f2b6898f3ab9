"""Types of decoded values, between a schema, Spark's DDL and Arrow.

Pure: no pyspark, no pyarrow.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, cast, final

from tidelog.wire.errors import ConfigError

Kind = Literal[
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary",
    "date", "timestamp", "timestamp_ntz", "decimal", "array", "map", "struct",
]  # fmt: skip
Unit = Literal["ms", "us"]

_LEAVES: Final[Mapping[str, Kind]] = {
    "boolean": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
"""Kinds by the names of types in the JSON of a `StructType`."""
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)", re.ASCII)


@final
@dataclass(frozen=True, slots=True)
class ValueField:
    """Field of a struct, element of an array, or key or value of a map."""

    name: str
    type: "ValueType"
    is_nullable: bool = True


@final
@dataclass(frozen=True, slots=True)
class ValueType:
    """Type of a value or of a part of it."""

    kind: Kind
    fields: tuple[ValueField, ...] = ()
    """Fields of a struct; the element of an array; key and value of a map."""
    precision: int = 0
    """Number of digits of a decimal."""
    scale: int = 0
    """Number of digits of a decimal behind the point."""
    unit: Unit = "us"
    """Unit of the encoded numbers of timestamps; Spark has microseconds."""

    @classmethod
    def from_spark(cls, found: object, where: str = "value") -> Self:
        """Return a type from `DataType.jsonValue()`.

        Raises:
            ConfigError: The values of this type cannot be decoded; the message begins with `where`.
        """
        if isinstance(found, str):
            decimal = _DECIMAL.fullmatch(found)
            if decimal is not None:
                return cls("decimal", precision=int(decimal[1]), scale=int(decimal[2]))
            if found in _LEAVES:
                return cls(_LEAVES[found])
        elif isinstance(found, dict):
            return cls._nested(cast("dict[str, Any]", found), where)
        raise ConfigError(f"{where} has the type {found!r}, which no format has; use string")

    @classmethod
    def _nested(cls, found: Mapping[str, Any], where: str) -> Self:
        kind = found.get("type")
        if kind == "array":
            element = cls.from_spark(found["elementType"], f"{where}[]")
            return cls("array", (ValueField("element", element, found["containsNull"]),))
        if kind == "map":
            key = cls.from_spark(found["keyType"], f"a key of {where}")
            value = cls.from_spark(found["valueType"], f"{where}{{}}")
            nullable = found["valueContainsNull"]
            return cls("map", (ValueField("key", key, False), ValueField("value", value, nullable)))
        if kind == "struct":
            fields = [
                ValueField(
                    each["name"],
                    cls.from_spark(each["type"], f"{where}.{each['name']}"),
                    each["nullable"],
                )
                for each in found["fields"]
            ]
            return cls.struct(fields, where)
        raise ConfigError(f"{where} has the type {kind!r}, which no format has; use string")

    @classmethod
    def struct(cls, fields: "list[ValueField]", where: str) -> Self:
        """Return a struct.

        Raises:
            ConfigError: It has no field, or two of one name; the message begins with `where`.
        """
        if not fields:
            raise ConfigError(f"{where} has no fields; name at least one")
        names = [each.name for each in fields]
        if len(set(names)) < len(names):
            raise ConfigError(f"{where} has a field twice: {', '.join(names)}")
        return cls("struct", tuple(fields))

    def ddl(self, *, is_full: bool = True) -> str:
        """Return the type in Spark's DDL; `is_full` adds NOT NULL, where DDL can have it."""
        inner = [each.type.ddl(is_full=is_full) for each in self.fields]
        if self.kind == "struct":
            parts = [
                f"`{each.name.replace('`', '``')}`:{text}"
                + (" NOT NULL" if is_full and not each.is_nullable else "")
                for each, text in zip(self.fields, inner, strict=True)
            ]
            return f"struct<{','.join(parts)}>"
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return f"{self.kind}<{','.join(inner)}>" if inner else self.kind

    def encoded_as(self, found: "ValueType") -> "ValueType":
        """Return this type with the units of `found`, which is the same type as encoded.

        `self` may have some of the fields of `found` only, in any order.

        Raises:
            ConfigError: A field is missing in `found`, or has another type there.
        """
        by_name = {each.name: each for each in found.fields}
        fields: list[ValueField] = []
        for each in self.fields:
            other = by_name.get(each.name)
            if other is None:
                raise ConfigError(
                    f"value.schema has no field {each.name!r}; it has {', '.join(by_name)}"
                )
            wanted, has = each.type.ddl(is_full=False), other.type.ddl(is_full=False)
            if wanted != has:
                raise ConfigError(f"value.{each.name} is {has} in value.schema, not {wanted}")
            fields.append(replace(each, type=each.type.with_units(other.type)))
        return replace(self, fields=tuple(fields))

    def with_units(self, other: "ValueType") -> "ValueType":
        """Return this type with the units of an equal one."""
        pairs = zip(self.fields, other.fields, strict=True)
        fields = [replace(mine, type=mine.type.with_units(its.type)) for mine, its in pairs]
        return replace(self, fields=tuple(fields), unit=other.unit)
