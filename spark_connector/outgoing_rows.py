"""Rows on their way to topics: which columns they need, and which records they become.

Without I/O. Columns are those of Spark's Kafka sink; others are passed over, as there. So what was
read from a topic can be written to one as it is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

import pyarrow as pa

from client.partitioner import partition_for_key
from spark_connector.options import WriteOptions
from wire.errors import ConfigError, UnknownPartitionError
from wire.record_batch import Columns, Headers

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
"""Of keys, values and headers in one batch, unless a single row has more."""
_ROW_BYTES: Final = 16


class Outgoing(NamedTuple):
    """Records for one partition."""

    topic: str
    partition: int
    columns: Columns


def check_columns(fields: Iterable[tuple[str, str]], options: WriteOptions) -> None:
    """Check that rows can be written, before any is.

    Args:
        fields: Names and simple types of the columns.
        options: Of the sink.

    Raises:
        ConfigError: A column is missing, or of another type; one line.
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


def outgoing(
    batch: pa.RecordBatch,
    options: WriteOptions,
    partition_counts: Mapping[str, int],
    sticky: int,
) -> Iterator[Outgoing]:
    """Yield the records of a batch of rows, for each partition in their order.

    Args:
        batch: The rows.
        options: Of the sink.
        partition_counts: Of each topic that `topics_of` returns.
        sticky: Chooses a partition for rows that have neither a key nor a partition.

    Raises:
        UnknownPartitionError: A row names a partition that its topic does not have.
    """
    values = _bytes_of(batch, "value") or [None] * batch.num_rows
    keys = _bytes_of(batch, "key")
    headers = _headers_of(batch) if options.include_headers else None
    for (topic, partition), rows in _places(batch, options, partition_counts, keys, sticky).items():
        for part in _cut(rows, values, keys, headers):
            yield Outgoing(topic, partition, _columns(part, values, keys, headers))


def topics_of(batch: pa.RecordBatch, options: WriteOptions) -> list[str]:
    """Return the topics to which rows go, each once.

    Raises:
        ConfigError: A row has none.
    """
    if options.topic is not None:
        return [options.topic]
    topics = dict.fromkeys(_column(batch, "topic") or [None])
    if None in topics:
        raise ConfigError("a row has no topic: its column topic is null")
    return cast("list[str]", list(topics))


def _places(
    batch: pa.RecordBatch,
    options: WriteOptions,
    partition_counts: Mapping[str, int],
    keys: Sequence[bytes | None] | None,
    sticky: int,
) -> dict[tuple[str, int], Sequence[int]]:
    """Return which rows go where."""
    chosen = cast("Sequence[int | None] | None", _column(batch, "partition"))
    topics = None if options.topic is not None else cast("list[str]", _column(batch, "topic"))
    if topics is None and chosen is None and keys is None:
        assert options.topic is not None
        return {(options.topic, sticky % partition_counts[options.topic]): range(batch.num_rows)}
    places: dict[tuple[str, int], list[int]] = {}
    known: dict[tuple[str, bytes], int] = {}
    for row in range(batch.num_rows):
        topic = options.topic if topics is None else topics[row]
        assert topic is not None, "topics_of has checked it"
        count = partition_counts[topic]
        partition = None if chosen is None else chosen[row]
        key = None if keys is None else keys[row]
        if partition is None and key is not None:
            partition = known.get((topic, key))
            if partition is None:
                partition = known[topic, key] = partition_for_key(key, count)
        elif partition is None:
            partition = sticky % count
        elif not 0 <= partition < count:
            raise UnknownPartitionError(
                f"a row names partition {partition} of topic {topic!r}, which has {count}"
            )
        places.setdefault((topic, partition), []).append(row)
    return {**places}


def _cut(
    rows: Sequence[int],
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | None,
) -> Iterator[Sequence[int]]:
    """Yield rows that fit into one batch."""
    first, size = 0, 0
    for place, row in enumerate(rows):
        more = _ROW_BYTES + len(values[row] or b"")
        more += 0 if keys is None else len(keys[row] or b"")
        if headers is not None:
            more += sum(len(name) + len(value) for name, value in headers[row])
        if size and size + more > BATCH_BYTES_MAX:
            yield rows[first:place]
            first, size = place, 0
        size += more
    if first < len(rows):
        yield rows[first:]


def _columns(
    rows: Sequence[int],
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | None,
) -> Columns:
    chosen_headers = None if headers is None else [headers[row] for row in rows]
    return Columns(
        len(rows),
        keys=None if keys is None else [keys[row] for row in rows],
        values=[values[row] for row in rows],
        headers=chosen_headers if chosen_headers and any(chosen_headers) else None,
    )


def _column(batch: pa.RecordBatch, name: str) -> list[object] | None:
    """Return a column as Python has it, `None` if it is not there."""
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
