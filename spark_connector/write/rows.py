"""Conversion of Spark rows to record batches, with the check of their columns.

Without I/O. The columns are those of Spark's Kafka sink; others are ignored, as there. So rows read
from a topic can be written to a topic unchanged.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple, TypeVar, cast, final

import pyarrow as pa

from tidelog.client.producer.partitioner import partition_for_key
from tidelog.spark_connector.options import WriteOptions
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
Label = TypeVar("Label", str, int)


class RowBatch(NamedTuple):
    """Records for one partition."""

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


@final
@dataclass(frozen=True, slots=True)
class _Rows:
    """Columns of rows to write."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Headers] | None
    sizes: Sequence[int]
    """Approximate bytes of each row as a record."""

    def only(self, rows: Sequence[int]) -> "_Rows":
        """Return a selection of the rows."""
        return self if len(rows) == len(self.values) else self._picked(rows)

    def _picked(self, rows: Sequence[int]) -> "_Rows":
        return _Rows(
            [self.values[row] for row in rows],
            None if self.keys is None else [self.keys[row] for row in rows],
            None if self.headers is None else [self.headers[row] for row in rows],
            [self.sizes[row] for row in rows],
        )

    def batches(self) -> Iterator[Columns]:
        """Yield the rows in order, as batches within the size limit."""
        for start, end in _cuts(self.sizes):
            headers = None if self.headers is None else self.headers[start:end]
            yield Columns(
                end - start,
                keys=None if self.keys is None else self.keys[start:end],
                values=self.values[start:end],
                headers=headers if headers and any(headers) else None,
            )


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
        UnknownPartitionError: A row names a partition that its topic does not have.
    """
    rows = _rows(batch, options)
    chosen = cast("Sequence[int | None] | None", _column(batch, "partition"))
    for topic, of_topic in _by_topic(batch, options).items():
        count = partition_counts[topic]
        part = rows.only(of_topic)
        wanted = chosen if chosen is None or part is rows else [chosen[row] for row in of_topic]
        if wanted is None and part.keys is None:
            places: Mapping[int, Sequence[int]] = {sticky % count: range(len(part.values))}
        else:
            places = _grouped(
                _partitions(
                    topic,
                    count,
                    wanted=wanted,
                    keys=part.keys,
                    sticky=sticky,
                    known_keys=known_keys,
                )
            )
        for partition, of_partition in places.items():
            for columns in part.only(of_partition).batches():
                yield RowBatch(topic, partition, columns)


def topics_of(batch: pa.RecordBatch, options: WriteOptions) -> list[str]:
    """Return the topics of the rows, each once.

    Raises:
        ConfigError: A row has no topic.
    """
    if options.topic is not None:
        return [options.topic]
    topics = dict.fromkeys(_column(batch, "topic") or [None])
    if None in topics:
        raise ConfigError("a row has no topic: its column topic is null")
    return cast("list[str]", list(topics))


def _by_topic(batch: pa.RecordBatch, options: WriteOptions) -> Mapping[str, Sequence[int]]:
    """Return the rows of each topic."""
    if options.topic is not None:
        return {options.topic: range(batch.num_rows)}
    return _grouped(cast("Sequence[str]", _column(batch, "topic")))


def _partitions(
    topic: str,
    count: int,
    *,
    wanted: Sequence[int | None] | None,
    keys: Sequence[bytes | None] | None,
    sticky: int,
    known_keys: KeyPartitioner,
) -> Sequence[int]:
    """Return the partition of each row of a topic."""
    known, other = known_keys.among(count), sticky % count
    of_keys: Sequence[int] | None = None
    if keys is not None and (wanted is None or None in wanted):
        of_keys = [other if key is None else known[key] for key in keys]
    if wanted is None:
        assert of_keys is not None
        return of_keys
    for partition in dict.fromkeys(wanted):
        if partition is not None and not 0 <= partition < count:
            raise UnknownPartitionError(
                f"a row names partition {partition} of topic {topic!r}, which has {count}"
            )
    if of_keys is None:
        return [other if partition is None else partition for partition in wanted]
    return [
        of_key if partition is None else partition
        for partition, of_key in zip(wanted, of_keys, strict=True)
    ]


def _grouped(labels: Sequence[Label]) -> dict[Label, list[int]]:
    """Return the rows of each label."""
    rows: dict[Label, list[int]] = {label: [] for label in labels}
    for row, label in enumerate(labels):
        rows[label].append(row)
    return rows


def _cuts(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and end row of each batch; only a single row may exceed the limit."""
    ends = list(accumulate(sizes))
    start, passed = 0, 0
    while start < len(ends):
        end = max(bisect_right(ends, passed + BATCH_BYTES_MAX, lo=start), start + 1)
        yield start, end
        start, passed = end, ends[end - 1]


def _rows(batch: pa.RecordBatch, options: WriteOptions) -> _Rows:
    values = _bytes_of(batch, "value") or [None] * batch.num_rows
    keys = _bytes_of(batch, "key")
    headers = _headers_of(batch) if options.include_headers else None
    sizes = [_ROW_BYTES + len(value or b"") for value in values]
    if keys is not None:
        sizes = [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
    if headers is not None:
        sizes = [
            size + sum(len(name) + len(value) for name, value in of_row)
            for size, of_row in zip(sizes, headers, strict=True)
        ]
    return _Rows(values, keys, headers, sizes)


def _column(batch: pa.RecordBatch, name: str) -> list[object] | None:
    """Return a column as Python objects, or `None` if it is missing."""
    if name not in batch.schema.names:
        return None
    return cast("list[object]", batch.column(name).to_pylist())


def _bytes_of(batch: pa.RecordBatch, name: str) -> list[bytes | None] | None:
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    return cast("list[bytes | None]", column.to_pylist())


def _headers_of(batch: pa.RecordBatch) -> list[Headers] | None:
    column = cast("list[list[dict[str, object]] | None] | None", _column(batch, "headers"))
    if column is None:
        return None
    return [
        tuple((cast("str", each["key"]), cast("bytes", each["value"] or b"")) for each in row or ())
        for row in column
    ]
