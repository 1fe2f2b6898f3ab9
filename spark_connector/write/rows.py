"""Conversion of Spark rows to record batches, with the check of their columns.

Without I/O. The columns are those of Spark's Kafka sink; others are ignored, as there. So rows read
from a topic can be written to a topic unchanged. Rows stay Arrow columns: they are sorted by their
partitions, and a batch of format 2 takes the lengths and the bytes of its keys and values as they
are. Python objects exist for keys, while they are hashed, and for headers.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Final, NamedTuple, cast, final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.client.producer.partitioner import partition_for_key
from tidelog.spark_connector.options import WriteOptions
from tidelog.wire.batch.byte_column import ByteColumn
from tidelog.wire.batch.record_batch import Columns, Headers
from tidelog.wire.errors import ConfigError, UnknownPartitionError

_BYTES: Final = ("string", "binary")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final[Mapping[str, Sequence[str]]] = {
    "value": _BYTES,
    "key": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": (_HEADERS,),
}
BATCH_BYTES_MAX: Final = 512 << 10
"""Bytes of keys, values and headers in one batch; only a single larger row exceeds it."""
_ROW_BYTES: Final = 16
_KEYS_MAX: Final = 100_000
_RECORD_COLUMNS: Final = ("value", "key", "headers")
_LENGTHS: Final = (pa.uint8(), pa.uint16(), pa.uint32())


class RowBatch(NamedTuple):
    """Records for one partition, as views of the rows."""

    topic: str
    partition: int
    columns: Columns


def check_columns(fields: Iterable[tuple[str, str]], options: WriteOptions) -> None:
    """Check the columns before any row is written.

    Args:
        fields: Names and simple types of the columns.
        options: Options of the sink.

    Raises:
        ConfigError: A column is missing, or has another type; one line.
    """
    types = dict(fields)
    if "value" not in types:
        raise ConfigError(f"there is no column value; the columns are {', '.join(types)}")
    if options.topic is None and "topic" not in types:
        raise ConfigError('there is no topic: say .option("topic", ...), or add a column topic')
    for name, legal in _TYPES.items():
        given = types.get(name)
        if name == "headers" and not options.include_headers:
            continue
        if given is not None and given not in legal:
            raise ConfigError(f"column {name} is {given}, it must be {' or '.join(legal)}")


@final
class KeyPartitioner:
    """Cache of the partitions of a task's keys; a lookup is faster than a hash."""

    def __init__(self) -> None:
        """Create an empty cache."""
        self._known: dict[int, _KnownKeys] = {}

    def among(self, partition_count: int) -> "_KnownKeys":
        """Return the cache for topics with this number of partitions."""
        if partition_count not in self._known:
            self._known[partition_count] = _KnownKeys(partition_count)
        return self._known[partition_count]


@final
class _KnownKeys(dict[bytes, int]):
    """Partitions by key; a missing key is hashed."""

    def __init__(self, partition_count: int) -> None:
        super().__init__()
        self._partition_count = partition_count

    def __missing__(self, key: bytes) -> int:
        if len(self) >= _KEYS_MAX:
            self.clear()
        partition = self[key] = partition_for_key(key, self._partition_count)
        return partition


def row_batches(
    batch: pa.RecordBatch,
    options: WriteOptions,
    partition_counts: Mapping[str, int],
    *,
    sticky: int,
    known_keys: KeyPartitioner,
) -> Iterator[RowBatch]:
    """Yield the records of a batch of rows; the order within a partition is kept.

    Args:
        batch: The rows.
        options: Options of the sink.
        partition_counts: Number of partitions of each topic that `topics_of` returns.
        sticky: Selects the partition of rows that have neither a key nor a partition.
        known_keys: Cache of the task's keys.

    Raises:
        ConfigError: A header has no name.
        UnknownPartitionError: A row names a partition that its topic does not have.
    """
    for topic, of_topic in _by_topic(batch, options):
        count = partition_counts[topic]
        places = _partitions(of_topic, topic, count, sticky=sticky, known_keys=known_keys)
        yield from _of_partitions(of_topic, topic, places, options=options)


def topics_of(batch: pa.RecordBatch, options: WriteOptions) -> list[str]:
    """Return the topics of the rows, each once.

    Raises:
        ConfigError: A row has no topic.
    """
    if options.topic is not None:
        return [options.topic]
    column = _column(batch, "topic")
    topics = [None] if column is None else pc.unique(column).to_pylist()
    if None in topics:
        raise ConfigError("a row has no topic: its column topic is null")
    return cast("list[str]", topics)


def _by_topic(batch: pa.RecordBatch, options: WriteOptions) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each topic."""
    topics = topics_of(batch, options)
    if len(topics) == 1:
        yield topics[0], batch
        return
    column = batch.column("topic")
    for topic in topics:
        yield topic, batch.filter(pc.equal(column, topic))


def _partitions(
    rows: pa.RecordBatch,
    topic: str,
    count: int,
    *,
    sticky: int,
    known_keys: KeyPartitioner,
) -> pa.Array | int:
    """Return the partition of each row of a topic, or that of all."""
    wanted, keys = _column(rows, "partition"), _column(rows, "key")
    chosen: pa.Array | int = sticky % count
    if wanted is not None:
        _check_partitions(wanted, topic, count)
    if keys is not None and (wanted is None or wanted.null_count):
        chosen = _of_keys(_binary(keys), known_keys.among(count), sticky % count)
    if wanted is None:
        return chosen
    return pc.coalesce(wanted, pa.scalar(chosen, pa.int32()) if isinstance(chosen, int) else chosen)


def _of_keys(keys: pa.Array, known: Mapping[bytes, int], other: int) -> pa.Array:
    """Return the partition of each key; `other` for a row without a key."""
    found = array("i", map(known.__getitem__, keys.fill_null(b"").to_pylist()))
    chosen = pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(found)])
    return pc.if_else(pc.is_null(keys), other, chosen) if keys.null_count else chosen


def _check_partitions(wanted: pa.Array, topic: str, count: int) -> None:
    for partition in pc.unique(wanted).to_pylist():
        if partition is not None and not 0 <= partition < count:
            raise UnknownPartitionError(
                f"a row names partition {partition} of topic {topic!r}, which has {count}"
            )


def _of_partitions(
    rows: pa.RecordBatch, topic: str, places: pa.Array | int, *, options: WriteOptions
) -> Iterator[RowBatch]:
    """Yield the rows of a topic as batches within the size limit, partition by partition."""
    names = [name for name in _RECORD_COLUMNS if name in rows.schema.names]
    rows = rows.select(names)
    runs: list[tuple[int, int]] = []
    if isinstance(places, int):
        runs.append((places, rows.num_rows))
    else:
        counts = pc.value_counts(places).to_pylist()
        runs = sorted((each["values"], each["counts"]) for each in counts)
        if len(runs) > 1:
            rows = rows.take(pc.array_sort_indices(places))  # Stable.
    records = _Records(rows, options)
    start = 0
    for partition, count in runs:
        for columns in records.batches(start, start + count):
            yield RowBatch(topic, partition, columns)
        start += count


@final
class _Records:
    """Rows with the fields of records, from which consecutive ones become batches."""

    def __init__(self, rows: pa.RecordBatch, options: WriteOptions) -> None:
        keys, headers = _column(rows, "key"), _column(rows, "headers")
        self._values = _Bytes(rows.column("value"))
        self._keys = None if keys is None else _Bytes(keys)
        self._headers: list[Headers] | None = None
        if headers is not None and options.include_headers:
            self._headers = _headers_of(headers)
        self._header_ends: list[int] = []
        if self._headers is not None:
            sizes = (
                sum(len(name) + len(value) for name, value in of_row) for of_row in self._headers
            )
            self._header_ends = list(accumulate(sizes, initial=0))

    def batches(self, start: int, end: int) -> Iterator[Columns]:
        """Yield rows as batches within the size limit, which only a single row may exceed."""
        while start < end:
            limit = self._begin_of(start) + BATCH_BYTES_MAX
            count = bisect_right(range(start + 1, end + 1), limit, key=self._begin_of)
            stop = start + max(count, 1)
            headers = None if self._headers is None else self._headers[start:stop]
            yield Columns(
                stop - start,
                keys=None if self._keys is None else self._keys.column(start, stop),
                values=self._values.column(start, stop),
                headers=headers if headers and any(headers) else None,
            )
            start = stop

    def _begin_of(self, row: int) -> int:
        """Return the approximate bytes of all rows before this one."""
        begin = row * _ROW_BYTES + self._values.ends[row]
        if self._keys is not None:
            begin += self._keys.ends[row]
        if self._header_ends:
            begin += self._header_ends[row]
        return begin


@final
class _Bytes:
    """An Arrow column of keys or values, of which consecutive ones become the bytes of a batch."""

    def __init__(self, given: pa.Array) -> None:
        column = _binary(given)
        self._nulls: memoryview | None = None
        if column.null_count:
            self._nulls = _buffer(pc.is_null(column).cast(pa.uint8()), 1)
            column = column.fill_null(b"")  # The bytes of a null may be any.
        count = len(column)
        self.ends = _buffer(column, 1).cast("i")[column.offset : column.offset + count + 1]
        """Position of the first byte of each value, and of the end of the last one."""
        self._blob = _buffer(column, 2)
        lengths = pc.binary_length(column)
        longest = pc.max(lengths).as_py() or 0
        kind = next(kind for kind in _LENGTHS if longest < 1 << 8 * kind.byte_width)
        self._width = kind.byte_width
        self._lengths = _buffer(lengths.cast(kind), 1)[: count * self._width]

    def column(self, start: int, end: int) -> ByteColumn:
        """Return the values of some rows, as views."""
        width, nulls = self._width, self._nulls
        return ByteColumn(
            self._lengths[start * width : end * width],
            width,
            self._blob[self.ends[start] : self.ends[end]],
            nulls=None if nulls is None else nulls[start:end],
        )


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    return batch.column(name) if name in batch.schema.names else None


def _binary(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _buffer(column: pa.Array, place: int) -> memoryview:
    buffer = column.buffers()[place]
    return memoryview(b"") if buffer is None else memoryview(buffer).cast("B")


def _headers_of(column: pa.Array) -> list[Headers]:
    """Return the headers of each row.

    Raises:
        ConfigError: A header has no name.
    """
    pairs = column.flatten()
    names, values = pc.struct_field(pairs, [0]), pc.struct_field(pairs, [1])
    if names.null_count:
        raise ConfigError("a row has a header without a name: the key of an element is null")
    all_pairs = zip(names.to_pylist(), values.fill_null(b"").to_pylist(), strict=True)
    counts = pc.list_value_length(column).fill_null(0).to_pylist()
    return [tuple(islice(all_pairs, count)) for count in counts]
