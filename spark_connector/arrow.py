"""Records to Arrow, column by column; only the columns that are wanted.

Pure: no clock, no I/O. Imports pyarrow, so only readers and writers import it.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, final

import pyarrow as pa
import pyarrow.compute as pc

from spark_connector.record_columns import RecordColumns
from wire.queues import (
    FIRST_RECEIVED_HEADER,
    FIRST_SENT_HEADER,
    LAST_RECEIVED_HEADER,
    ORIGIN_OFFSET_HEADER,
    ORIGIN_PARTITION_HEADER,
    ORIGIN_QUEUE_HEADER,
    ORIGIN_TOPIC_HEADER,
    REASON_HEADER,
    RECEIVE_COUNT_HEADER,
)

ROWS_MAX: Final = 16_384
"""Rows of one Arrow batch: enough that the cost of a batch is spread, few enough for memory."""
BYTES_MAX: Final = 4 << 20
"""Bytes of one Arrow batch, unless one log batch has more."""

_HEADER_FIELDS: Final = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
_TIME: Final = pa.timestamp("us", tz="UTC")
_TIME_IN_MS: Final = pa.timestamp("ms", tz="UTC")
_TYPES: Final = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": _TIME,
    "array<struct<key:string,value:binary>>": pa.list_(
        pa.field("element", pa.struct(_HEADER_FIELDS))
    ),
}
"""By the names that Spark gives them; they are what Spark makes of its own types."""
_HEADERS_TYPE: Final = _TYPES["array<struct<key:string,value:binary>>"]
_COUNTED: Final = pa.array(range(ROWS_MAX), pa.int64())
_OFFSET_BYTES: Final = 8


def arrow_schema(columns: Sequence[str], types: Sequence[str]) -> pa.Schema:
    """Return the schema of columns whose types are named as Spark names them."""
    return pa.schema(
        [pa.field(name, _TYPES[kind]) for name, kind in zip(columns, types, strict=True)]
    )


@final
class ArrowRows:
    """Rows that are put together until there are enough for one Arrow batch."""

    def __init__(self, schema: pa.Schema) -> None:
        """Begin with none."""
        self._schema = schema
        self._columns = [_COLUMNS[name]() for name in schema.names]
        self.row_count = 0
        self.byte_count = 0
        """Of columns that are not the same for all records of a batch."""

    @property
    def is_full(self) -> bool:
        """Whether it is time to take them."""
        return self.row_count >= ROWS_MAX or self.byte_count >= BYTES_MAX

    def add(self, records: RecordColumns) -> None:
        """Add records; nothing of them is referred to afterwards."""
        if not len(records):
            return  # Compaction left none of them.
        for column in self._columns:
            self.byte_count += column.add(records)
        self.row_count += len(records)

    def take(self) -> pa.RecordBatch:
        """Return all rows as one batch, and begin with none."""
        arrays = [column.take() for column in self._columns]
        self.row_count = self.byte_count = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Column(Protocol):
    """One column of the rows that are put together."""

    def add(self, records: RecordColumns) -> int:
        """Add what records have; return how many bytes that takes."""
        ...

    def take(self) -> pa.Array:
        """Return all of it, and begin with nothing."""
        ...


@final
class _Pieces:
    """A column with a value for each record: an array for each batch of records."""

    def __init__(self, make: "_Maker", kind: pa.DataType | None = None) -> None:
        """Have `make` make the arrays, and cast them to `kind` in the end."""
        self._make = make
        self._kind = kind
        self._pieces: list[pa.Array] = []

    def add(self, records: RecordColumns) -> int:
        piece = self._make(records)
        self._pieces.append(piece)
        return piece.nbytes

    def take(self) -> pa.Array:
        whole = _joined(self._pieces)
        self._pieces = []
        return whole if self._kind is None else whole.cast(self._kind)


@final
class _Runs:
    """A column whose value is the same for all records of a batch, and mostly beyond it."""

    def __init__(self, value_of: Callable[[RecordColumns], object], kind: pa.DataType) -> None:
        """Have `value_of` say which."""
        self._value_of = value_of
        self._kind = kind
        self._runs: list[tuple[object, int]] = []

    def add(self, records: RecordColumns) -> int:
        value, count = self._value_of(records), len(records)
        if self._runs and self._runs[-1][0] == value:
            count += self._runs.pop()[1]
        self._runs.append((value, count))
        return 0

    def take(self) -> pa.Array:
        runs = [pa.repeat(pa.scalar(value, self._kind), count) for value, count in self._runs]
        self._runs = []
        return _joined(runs)


@final
class _Offsets:
    """Offsets, which nearly always follow each other: then no number is made one by one."""

    def __init__(self) -> None:
        self._runs: list[Sequence[int]] = []

    def add(self, records: RecordColumns) -> int:
        offsets = records.offsets
        last = self._runs[-1] if self._runs else None
        if isinstance(offsets, range) and isinstance(last, range) and last.stop == offsets.start:
            self._runs[-1] = range(last.start, offsets.stop)
        else:
            self._runs.append(offsets)
        return len(offsets) * _OFFSET_BYTES

    def take(self) -> pa.Array:
        runs = [_numbers(run) for run in self._runs]
        self._runs = []
        return _joined(runs)


def _joined(pieces: list[pa.Array]) -> pa.Array:
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _numbers(numbers: Sequence[int]) -> pa.Array:
    if isinstance(numbers, range):
        return _joined([_counted(part) for part in _parts(numbers)])
    content = pa.py_buffer(array("q", numbers))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, content])


def _parts(numbers: range) -> list[range]:
    return [numbers[at : at + ROWS_MAX] for at in range(0, len(numbers), ROWS_MAX)]


def _counted(numbers: range) -> pa.Array:
    """Return at most `ROWS_MAX` numbers that follow each other."""
    return pc.add(_COUNTED.slice(0, len(numbers)), pa.scalar(numbers.start, pa.int64()))


def _times(times_ms: Sequence[int | None]) -> pa.Array:
    return pa.array(times_ms, _TIME_IN_MS).cast(_TIME)


def _timestamps(records: RecordColumns) -> pa.Array:
    """Return times in milliseconds."""
    first = pa.scalar(records.first_timestamp_ms, pa.int64())
    deltas = records.timestamp_deltas
    if deltas is None:
        return pa.repeat(first, len(records)).view(_TIME_IN_MS)
    return pc.add(_numbers(deltas), first).view(_TIME_IN_MS)


def _headers(records: RecordColumns) -> pa.Array:
    names: list[str] = []
    values: list[bytes] = []
    ends: list[int | None] = []
    for of_record in records.headers:
        # An entry of `ends` that is null makes the list that begins there null.
        ends.append(len(names) if of_record else None)
        for name, value in of_record:
            names.append(name)
            values.append(value)
    ends.append(len(names))
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], fields=_HEADER_FIELDS
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs, type=_HEADERS_TYPE)


def _from_header(name: str, read: Callable[[bytes], Any], kind: pa.DataType) -> "_Maker":
    """Return what makes a column of what one header says; null where it is missing or not legal."""

    def value_of(headers: Sequence[tuple[str, bytes]]) -> Any:  # noqa: ANN401 (one type per column)
        for found, value in headers:
            if found == name:
                try:
                    return read(value)
                except (ValueError, OverflowError):
                    return None
        return None

    def make(records: RecordColumns) -> pa.Array:
        found = [value_of(headers) for headers in records.headers]
        return _times(found) if kind is _TIME else pa.array(found, kind)

    return make


def _int_below(limit: int) -> Callable[[bytes], int]:
    def read(value: bytes) -> int:
        number = int(value)
        if not -limit <= number < limit:
            raise OverflowError(number)
        return number

    return read


_INT: Final = _int_below(1 << 31)
_LONG: Final = _int_below(1 << 63)
_TIME_MS: Final = _int_below(1 << 53)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _of_headers(name: str, read: Callable[[bytes], Any], kind: pa.DataType) -> "_Factory":
    return partial(_Pieces, _from_header(name, read, kind))


_Maker = Callable[[RecordColumns], pa.Array]
_Factory = Callable[[], _Column]
_COLUMNS: Final[Mapping[str, _Factory]] = {
    "key": partial(_Pieces, lambda records: pa.array(records.keys, pa.binary())),
    "value": partial(_Pieces, lambda records: pa.array(records.values, pa.binary())),
    "topic": partial(_Runs, lambda records: records.topic, pa.string()),
    "partition": partial(_Runs, lambda records: records.partition, pa.int32()),
    "offset": _Offsets,
    "timestamp": partial(_Pieces, _timestamps, _TIME),
    "timestampType": partial(_Runs, lambda records: int(records.has_append_time), pa.int32()),
    "headers": partial(_Pieces, _headers),
    "originQueue": _of_headers(ORIGIN_QUEUE_HEADER, _text, pa.string()),
    "originTopic": _of_headers(ORIGIN_TOPIC_HEADER, _text, pa.string()),
    "originPartition": _of_headers(ORIGIN_PARTITION_HEADER, _INT, pa.int32()),
    "originOffset": _of_headers(ORIGIN_OFFSET_HEADER, _LONG, pa.int64()),
    "receiveCount": _of_headers(RECEIVE_COUNT_HEADER, _INT, pa.int32()),
    "firstReceived": _of_headers(FIRST_RECEIVED_HEADER, _TIME_MS, _TIME),
    "lastReceived": _of_headers(LAST_RECEIVED_HEADER, _TIME_MS, _TIME),
    "firstSent": _of_headers(FIRST_SENT_HEADER, _TIME_MS, _TIME),
    "reason": _of_headers(REASON_HEADER, _text, pa.string()),
}
