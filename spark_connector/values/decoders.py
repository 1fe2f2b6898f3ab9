"""Decoders of values: a column of encoded values to a column of structs, and the bad rows.

Pure: no clock, no I/O. msgspec decodes JSON and MessagePack with the types of the schema, so a bad
value is told apart from its neighbours with the path of the wrong field. fastavro, an extra,
decodes Avro.
"""

import datetime as dt
import importlib
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from io import BytesIO
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Final, NamedTuple, final

import msgspec
import pyarrow as pa

from tidelog.spark_connector.value_options import SCHEMA, ValueFormat
from tidelog.spark_connector.values.value_columns import Build, builder_of
from tidelog.spark_connector.values.value_type import Kind, ValueType
from tidelog.wire.errors import ConfigError

Decode = Callable[[bytes], Any]
"""Returns the object of one encoded value."""

_REASON_MAX: Final = 500


class BadValue(NamedTuple):
    """A value that does not match the schema."""

    row: int
    reason: str
    """One line."""


class DecodedValues(NamedTuple):
    """Column of decoded values."""

    column: pa.Array
    """Structs; null for a record without value, and for a bad value."""
    bad: Sequence[BadValue]
    """In the order of the rows."""


@final
class ValueDecoder:
    """Decoder of the values of one schema."""

    def __init__(
        self,
        value_format: ValueFormat,
        of: ValueType,
        avro: object = None,
        *,
        skip_bytes: int = 0,
    ) -> None:
        """Create a decoder.

        Args:
            value_format: Any but `raw`.
            of: Type of the column, a struct.
            avro: The Avro schema, for that format.
            skip_bytes: Bytes before the encoded value.

        Raises:
            ConfigError: The format cannot have the type, or its package is not installed.
        """
        if value_format == "avro":
            self._decode = _avro_decoder(avro)
            self._build: Build = builder_of(of, _item_of)
        else:
            self._decode = _typed_decoder(value_format, of)
            self._build = builder_of(of, _attribute_of)
        if skip_bytes:
            self._decode = _behind(skip_bytes, self._decode)

    def decode(self, values: pa.Array) -> DecodedValues:
        """Decode a column of binary values."""
        rows: list[Any] = []
        bad: list[BadValue] = []
        decode = self._decode
        for row, value in enumerate(values.to_pylist()):
            try:
                rows.append(None if value is None else decode(value))
            except MemoryError:
                raise  # The process is at fault, not the value.
            except Exception as error:  # noqa: BLE001 (fastavro documents no errors)
                rows.append(None)
                bad.append(BadValue(row, _reason(error)))
        try:
            return DecodedValues(self._build(rows), bad)
        except _UNFIT:
            for found in self._unfit(rows, 0):
                rows[found.row] = None
                bad.append(found)
            return DecodedValues(self._build(rows), sorted(bad))

    def _unfit(self, rows: Sequence[Any], first: int) -> Iterator[BadValue]:
        """Yield the rows whose values do not fit their columns, by repeated division."""
        try:
            self._build(rows)
        except _UNFIT as error:
            if len(rows) == 1:
                yield BadValue(first, _reason(error))
                return
            middle = len(rows) // 2
            yield from self._unfit(rows[:middle], first)
            yield from self._unfit(rows[middle:], first + middle)


def _behind(skip_bytes: int, decode: Decode) -> Decode:
    def decode_rest(value: bytes) -> Any:  # noqa: ANN401 (as `decode`)
        if len(value) < skip_bytes:
            raise ValueError(f"it has {len(value)} bytes, and value.skipBytes is {skip_bytes}")
        return decode(value[skip_bytes:])

    return decode_rest


_UNFIT: Final = (pa.ArrowException, ValueError, OverflowError)
"""Errors of Arrow for values that do not fit the type of their column."""


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _REASON_MAX else f"{text[:_REASON_MAX]}..."


# JSON and MessagePack

_INTEGER_BITS: Final[dict[Kind, int]] = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_TYPES: Final[dict[Kind, Any]] = {
    "boolean": bool,
    "float": float,
    "double": float,
    "string": str,
    "binary": bytes,
    "date": dt.date,
    "timestamp": Annotated[dt.datetime, msgspec.Meta(tz=True)],
    "timestamp_ntz": Annotated[dt.datetime, msgspec.Meta(tz=False)],
    "decimal": Decimal,
}
_JSON_KEYS: Final = ("string", "tinyint", "smallint", "int", "bigint")


def _typed_decoder(value_format: ValueFormat, of: ValueType) -> Decode:
    kind = _python_type(of, "value", is_json=value_format == "json")
    codec: Any = msgspec.json if value_format == "json" else msgspec.msgpack
    decode: Decode = codec.Decoder(kind).decode
    return decode


def _attribute_of(of: ValueType, index: int) -> Callable[[Any], Any]:
    del of
    return attrgetter(f"f{index}")


def _python_type(of: ValueType, where: str, *, is_json: bool) -> Any:  # noqa: ANN401 (a type)
    """Return the type with which msgspec checks values; a nullable one is a union with `None`."""
    inner = [
        kind | None if each.is_nullable else kind
        for each in of.fields
        for kind in [_python_type(each.type, f"{where}.{each.name}", is_json=is_json)]
    ]
    if of.kind == "struct":
        return msgspec.defstruct(
            "Value",
            [
                (f"f{index}", kind, None) if each.is_nullable else (f"f{index}", kind)
                for index, (each, kind) in enumerate(zip(of.fields, inner, strict=True))
            ],
            rename={f"f{index}": each.name for index, each in enumerate(of.fields)},
            kw_only=True,
            gc=False,
        )
    if of.kind == "array":
        return list[inner[0]]  # type: ignore[valid-type]
    if of.kind == "map":
        if is_json and of.fields[0].type.kind not in _JSON_KEYS:
            raise ConfigError(
                f"the keys of {where} are strings in JSON; make them string or bigint"
            )
        return dict[inner[0], inner[1]]  # type: ignore[valid-type]
    bits = _INTEGER_BITS.get(of.kind)
    if bits is not None:
        limit = 1 << bits - 1
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
    return _TYPES[of.kind]


# Avro


def _avro_decoder(schema: object) -> Decode:
    fastavro = avro_package()
    try:
        parsed = fastavro.parse_schema(schema)
    except Exception as error:  # fastavro documents no errors.
        raise ConfigError(f"{SCHEMA} is no Avro schema: {_reason(error)}") from error
    read = fastavro.schemaless_reader

    def decode(value: bytes) -> Any:  # noqa: ANN401 (a dict)
        stream = BytesIO(value)
        found = read(stream, parsed, None)
        left = len(value) - stream.tell()
        if left:
            raise ValueError(f"{left} bytes follow the record; the schema is another")
        return found

    return decode


def avro_package() -> Any:  # noqa: ANN401 (a module)
    """Return fastavro.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        return importlib.import_module("fastavro")
    except ImportError as error:
        raise ConfigError(
            "value.format avro needs fastavro, here and on the executors; pip install"
            " 'tidelog[avro]'"
        ) from error


def _item_of(of: ValueType, index: int) -> Callable[[Any], Any]:
    return itemgetter(of.fields[index].name)
