"""Records to Arrow, column by column; only the columns that are wanted.

Pure: no clock, no I/O. Imports pyarrow, so only readers and writers import it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, final

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
        self._makers = [_MAKERS[name] for name in schema.names]
        self._pieces: list[list[pa.Array]] = [[] for _ in self._makers]
        self.row_count = 0
        self.byte_count = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to take them."""
        return self.row_count >= ROWS_MAX or self.byte_count >= BYTES_MAX

    def add(self, records: RecordColumns) -> None:
        """Add records; nothing of them is referred to afterwards."""
        for pieces, make in zip(self._pieces, self._makers, strict=True):
            piece = make(records)
            pieces.append(piece)
            self.byte_count += piece.nbytes
        self.row_count += len(records)

    def take(self) -> pa.RecordBatch:
        """Return all rows as one batch, and begin with none."""
        arrays = [
            pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces) for pieces in self._pieces
        ]
        self._pieces = [[] for _ in self._makers]
        self.row_count = self.byte_count = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _offsets(records: RecordColumns) -> pa.Array:
    offsets = records.offsets
    if isinstance(offsets, range) and len(offsets) <= ROWS_MAX:
        # Nearly always: then no number is made one by one.
        return pc.add(_COUNTED.slice(0, len(offsets)), pa.scalar(offsets.start, pa.int64()))
    return pa.array(offsets, pa.int64())


def _times(times_ms: Sequence[int | None]) -> pa.Array:
    return pa.array(times_ms, pa.timestamp("ms", tz="UTC")).cast(_TIME)


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


_Maker = Callable[[RecordColumns], pa.Array]
_MAKERS: Final[dict[str, _Maker]] = {
    "key": lambda records: pa.array(records.keys, pa.binary()),
    "value": lambda records: pa.array(records.values, pa.binary()),
    "topic": lambda records: pa.repeat(records.topic, len(records)),
    "partition": lambda records: pa.repeat(pa.scalar(records.partition, pa.int32()), len(records)),
    "offset": _offsets,
    "timestamp": lambda records: _times(records.timestamps_ms),
    "timestampType": lambda records: pa.repeat(
        pa.scalar(int(records.has_append_time), pa.int32()), len(records)
    ),
    "headers": _headers,
    "originQueue": _from_header(ORIGIN_QUEUE_HEADER, _text, pa.string()),
    "originTopic": _from_header(ORIGIN_TOPIC_HEADER, _text, pa.string()),
    "originPartition": _from_header(ORIGIN_PARTITION_HEADER, _INT, pa.int32()),
    "originOffset": _from_header(ORIGIN_OFFSET_HEADER, _LONG, pa.int64()),
    "receiveCount": _from_header(RECEIVE_COUNT_HEADER, _INT, pa.int32()),
    "firstReceived": _from_header(FIRST_RECEIVED_HEADER, _TIME_MS, _TIME),
    "lastReceived": _from_header(LAST_RECEIVED_HEADER, _TIME_MS, _TIME),
    "firstSent": _from_header(FIRST_SENT_HEADER, _TIME_MS, _TIME),
    "reason": _from_header(REASON_HEADER, _text, pa.string()),
}
