"""Builder of Arrow batches from records, with the requested columns only.

Pure: no clock, no I/O. Imports pyarrow, so only readers and writers import it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, final

import pyarrow as pa

from tidelog.spark_connector.arrow.column_builders import (
    ROWS_MAX,
    TIME,
    BinaryBuilder,
    ChunkedBuilder,
    ColumnBuilder,
    OffsetBuilder,
    RunBuilder,
    TimestampBuilder,
    times,
)
from tidelog.spark_connector.arrow.record_columns import RecordColumns
from tidelog.wire.messages.queues import (
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

BYTES_MAX: Final = 4 << 20
"""Bytes of one Arrow batch; only a single larger log batch exceeds it."""

_HEADER_FIELDS: Final = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
_TYPES: Final = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": TIME,
    "array<struct<key:string,value:binary>>": pa.list_(
        pa.field("element", pa.struct(_HEADER_FIELDS))
    ),
}
"""Arrow types by the names of Spark's types, as Spark converts them."""
_HEADERS_TYPE: Final = _TYPES["array<struct<key:string,value:binary>>"]


def arrow_schema(columns: Sequence[str], types: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of columns with Spark's type names."""
    return pa.schema(
        [pa.field(name, _TYPES[kind]) for name, kind in zip(columns, types, strict=True)]
    )


@final
class RecordBatchBuilder:
    """Records that accumulate to one Arrow batch."""

    def __init__(self, schema: pa.Schema) -> None:
        """Create an empty builder."""
        self._schema = schema
        self._columns = [_COLUMNS[name]() for name in schema.names]
        self.row_count = 0
        self.byte_count = 0
        """Bytes of the columns that differ between the records of a batch."""

    @property
    def is_full(self) -> bool:
        """Whether the rows are enough for one Arrow batch."""
        return self.row_count >= ROWS_MAX or self.byte_count >= BYTES_MAX

    def add(self, records: RecordColumns) -> None:
        """Add a copy of these records."""
        if not len(records):
            return  # Compaction removed all of them.
        for column in self._columns:
            self.byte_count += column.add(records)
        self.row_count += len(records)

    def take(self) -> pa.RecordBatch:
        """Return all rows as one batch and reset the builder."""
        arrays = [column.take() for column in self._columns]
        self.row_count = self.byte_count = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _headers(records: RecordColumns) -> pa.Array:
    names: list[str] = []
    values: list[bytes] = []
    ends: list[int | None] = []
    for of_record in records.headers:
        # A null in `ends` makes the list that begins there null.
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
    """Return a function that builds a column from one header; a missing or invalid one is null."""

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
        return times(found) if kind is TIME else pa.array(found, kind)

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
    return partial(ChunkedBuilder, _from_header(name, read, kind))


_Maker = Callable[[RecordColumns], pa.Array]
_Factory = Callable[[], ColumnBuilder]
_COLUMNS: Final[Mapping[str, _Factory]] = {
    "key": partial(BinaryBuilder, "keys", lambda records: records.keys),
    "value": partial(BinaryBuilder, "values", lambda records: records.values),
    "topic": partial(RunBuilder, lambda records: records.topic, pa.string()),
    "partition": partial(RunBuilder, lambda records: records.partition, pa.int32()),
    "offset": OffsetBuilder,
    "timestamp": TimestampBuilder,
    "timestampType": partial(RunBuilder, lambda records: int(records.has_append_time), pa.int32()),
    "headers": partial(ChunkedBuilder, _headers),
    "originQueue": _of_headers(ORIGIN_QUEUE_HEADER, _text, pa.string()),
    "originTopic": _of_headers(ORIGIN_TOPIC_HEADER, _text, pa.string()),
    "originPartition": _of_headers(ORIGIN_PARTITION_HEADER, _INT, pa.int32()),
    "originOffset": _of_headers(ORIGIN_OFFSET_HEADER, _LONG, pa.int64()),
    "receiveCount": _of_headers(RECEIVE_COUNT_HEADER, _INT, pa.int32()),
    "firstReceived": _of_headers(FIRST_RECEIVED_HEADER, _TIME_MS, TIME),
    "lastReceived": _of_headers(LAST_RECEIVED_HEADER, _TIME_MS, TIME),
    "firstSent": _of_headers(FIRST_SENT_HEADER, _TIME_MS, TIME),
    "reason": _of_headers(REASON_HEADER, _text, pa.string()),
}
