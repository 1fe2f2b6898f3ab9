"""Reader of decoded values: Arrow batches with a struct as the column `value`.

Shell: it raises, adds a column or writes dead letters, as `value.badRows` says.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Final, final

import pyarrow as pa

from tidelog.spark_connector.read.columns import check_projection
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.spark_connector.value_options import BAD_ROWS, FORMAT, ValueOptions
from tidelog.spark_connector.values import dead_letters
from tidelog.spark_connector.values.decoders import BadValue, ValueDecoder
from tidelog.spark_connector.values.schemas import required_schema, schema_of
from tidelog.spark_connector.values.value_columns import arrow_type
from tidelog.spark_connector.values.value_type import ValueField, ValueType
from tidelog.wire.errors import ConfigError, TidelogError

VALUE: Final = "value"
BAD_VALUE: Final = "badValue"
_BAD_VALUE_TYPE: Final = ValueType(
    "struct",
    (ValueField("value", ValueType("binary")), ValueField("reason", ValueType("string"))),
)
_BAD_VALUE_KIND: Final = "struct<value:binary,reason:string>"
_ORIGIN: Final = ("topic", "partition", "offset")


@final
class BadValueError(TidelogError):
    """A value does not match the schema, and `value.badRows` is `fail`."""


def decoded_columns(columns: Mapping[str, str], values: ValueOptions) -> dict[str, str]:
    """Return the columns of a source, by Spark's names of their types, with decoded values.

    Raises:
        ConfigError: `value.schema` is missing or invalid.
    """
    found = dict(columns)
    if values.format != "raw" and VALUE in found:
        found[VALUE] = required_schema(values).ddl
        if values.bad_rows == "column":
            found[BAD_VALUE] = _BAD_VALUE_KIND
    return found


@final
@dataclass(frozen=True, slots=True)
class ValueReader:
    """Decoder of the batches of a source; Spark sends copies to the tasks."""

    options: ReadOptions
    columns: tuple[str, ...]
    """Columns of the result, in order."""
    of: ValueType
    """Type of the column `value`."""
    avro: object = None
    """The Avro schema, for that format."""

    @classmethod
    def plan(
        cls,
        wanted: Sequence[tuple[str, str, bool]],
        value_type: object,
        options: ReadOptions,
    ) -> "tuple[tuple[str, ...], ValueReader | None]":
        """Return the columns to read, and the reader of their values if they are decoded.

        Args:
            wanted: Name, type and nullability of each column of the result.
            value_type: JSON of the type of the column `value`, if that is wanted.
            options: Options of the source; their format is not `raw`.

        Raises:
            ConfigError: A column does not exist, or has a type that the format cannot have.
        """
        values = options.values
        read: list[tuple[str, str, bool]] = []
        for name, kind, is_nullable in wanted:
            if name == BAD_VALUE and values.bad_rows == "column":
                _check_bad_value(kind, is_nullable=is_nullable)
            elif name == VALUE and not kind.startswith("struct<"):
                raise ConfigError(
                    f"column value is a struct with {FORMAT} {values.format}, not {kind}; declare"
                    " its fields, for example value struct<id: bigint>"
                )
            else:
                read.append((name, "binary" if name == VALUE else kind, is_nullable))
        names = [name for name, _, _ in wanted]
        if len(read) < len(names) and (names.count(BAD_VALUE) > 1 or VALUE not in names):
            raise ConfigError(f"column {BAD_VALUE} may be there once, and needs the column value")
        columns = check_projection(read, options)
        if VALUE not in names:
            return columns, None
        of, schema = ValueType.from_spark(value_type), schema_of(values)
        if schema is not None and schema.type is not None:
            of = of.encoded_as(schema.type)
        avro = None if schema is None else schema.avro
        ValueDecoder(values.format, of, avro)  # Raises what else would fail every task.
        needed = {
            "fail": _ORIGIN,
            "column": (),
            "deadLetter": dead_letters.COLUMNS,
        }[values.bad_rows]
        added = tuple(name for name in needed if name not in columns)
        return columns + added, cls(options, tuple(names), of, avro)

    def decoded(self, batches: Generator[pa.RecordBatch, None, None]) -> Iterator[pa.RecordBatch]:
        """Yield batches with decoded values; closing the generator closes `batches`.

        Raises:
            BadValueError: A value does not match the schema, and `value.badRows` is `fail`.
            TidelogError: From `batches`, or a dead letter was not written.
        """
        values = self.options.values
        decoder = ValueDecoder(values.format, self.of, self.avro, skip_bytes=values.skip_bytes)
        letters: dead_letters.DeadLetterWriter | None = None
        with closing(batches), ExitStack() as stack:
            for batch in batches:
                found = decoder.decode(batch.column(VALUE))
                if found.bad and values.bad_rows == "fail":
                    raise _error(batch, found.bad[0])
                rows = self._rows(batch, found.column, found.bad)
                if found.bad and values.dead_letter_topic is not None:
                    if letters is None:
                        letters = stack.enter_context(
                            dead_letters.dead_letters(
                                self.options.connection, values.dead_letter_topic
                            )
                        )
                    letters.add(batch, found.bad)
                    rows = _without(rows, found.bad)
                elif letters is not None:
                    letters.renew()
                yield rows

    def _rows(
        self, batch: pa.RecordBatch, values: pa.Array, bad: Sequence[BadValue]
    ) -> pa.RecordBatch:
        fields: list[pa.Field] = []
        arrays: list[pa.Array] = []
        for name in self.columns:
            if name == VALUE:
                fields.append(pa.field(VALUE, arrow_type(self.of)))
                arrays.append(values)
            elif name == BAD_VALUE:
                fields.append(pa.field(BAD_VALUE, arrow_type(_BAD_VALUE_TYPE)))
                arrays.append(_bad_values(batch, bad))
            else:
                fields.append(batch.schema.field(name))
                arrays.append(batch.column(name))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _check_bad_value(kind: str, *, is_nullable: bool) -> None:
    if kind != _BAD_VALUE_KIND:
        raise ConfigError(f"column {BAD_VALUE} is {_BAD_VALUE_KIND}, not {kind}")
    if not is_nullable:
        raise ConfigError(f"column {BAD_VALUE} cannot be NOT NULL: it is null for a good row")


def _bad_values(batch: pa.RecordBatch, bad: Sequence[BadValue]) -> pa.Array:
    kind = arrow_type(_BAD_VALUE_TYPE)
    if not bad:
        return pa.nulls(batch.num_rows, kind)
    found: list[dict[str, object] | None] = [None] * batch.num_rows
    values = batch.column(VALUE)
    for each in bad:
        found[each.row] = {"value": values[each.row].as_py(), "reason": each.reason}
    return pa.array(found, kind)


def _without(rows: pa.RecordBatch, bad: Sequence[BadValue]) -> pa.RecordBatch:
    keep = [True] * rows.num_rows
    for each in bad:
        keep[each.row] = False
    return rows.filter(pa.array(keep, pa.bool_()))


def _error(batch: pa.RecordBatch, bad: BadValue) -> BadValueError:
    topic, partition, offset = (batch.column(name)[bad.row].as_py() for name in _ORIGIN)
    return BadValueError(
        f"{topic}/{partition}: the value at offset {offset} does not match the schema:"
        f" {bad.reason}; set {BAD_ROWS} to column or deadLetter to read on"
    )
