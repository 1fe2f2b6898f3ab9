"""Names and types of the source's columns.

Pure: no pyspark. A topic has the columns of Spark's Kafka source, so a job that reads from Kafka
needs only another format and other options.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.wire.errors import ConfigError

_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
RECORD_COLUMNS: Final[Mapping[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""Columns of every record, with the names of Spark's types. `timestampType` is 0 for the time of
the producer and 1 for that of the broker."""
HEADERS_COLUMN: Final[Mapping[str, str]] = {"headers": _HEADERS_TYPE}
"""Column for `includeHeaders`; null for a record without headers."""
ORIGIN_COLUMNS: Final[Mapping[str, str]] = {
    "originQueue": "string",
    "originTopic": "string",
    "originPartition": "int",
    "originOffset": "bigint",
    "receiveCount": "int",
    "firstReceived": "timestamp",
    "lastReceived": "timestamp",
    "firstSent": "timestamp",
    "reason": "string",
}
"""Columns of dead letters: the origin of each, and the reason of its move."""
HISTORY_COLUMNS: Final[Mapping[str, str]] = {
    "timestamp": "timestamp",
    "event": "string",
    "queue": "string",
    "partition": "int",
    "offset": "bigint",
    "holder": "string",
    "receiveCount": "int",
    "leaseId": "bigint",
    "visibleAt": "timestamp",
    "reason": "string",
    "belowOffset": "bigint",
    "messageCount": "bigint",
    "targetTopic": "string",
    "targetPartition": "int",
    "journalOffset": "bigint",
}
"""Columns of the history of a queue."""
COLUMN_TYPES: Final[Mapping[str, str]] = {
    **RECORD_COLUMNS,
    **HEADERS_COLUMN,
    **ORIGIN_COLUMNS,
    **HISTORY_COLUMNS,
}


def columns_of(options: ReadOptions) -> dict[str, str]:
    """Return the columns of a source, in order, with their types: those of the option `columns`.

    Raises:
        ConfigError: The option names a column that does not exist.
    """
    every = _all_columns(options)
    if not options.columns:
        return every
    if options.selection.history_of is None:
        every |= HEADERS_COLUMN
    by_lower = {name.lower(): name for name in every}
    strange = [name for name in options.columns if name.lower() not in by_lower]
    if strange:
        raise ConfigError(
            f"columns: there is no column {strange[0]!r}; there are {', '.join(every)}"
        )
    names = [by_lower[name.lower()] for name in options.columns]
    return {name: every[name] for name in names}


def _all_columns(options: ReadOptions) -> dict[str, str]:
    if options.selection.history_of is not None:
        return dict(HISTORY_COLUMNS)
    headers = HEADERS_COLUMN if options.include_headers else {}
    origin = ORIGIN_COLUMNS if options.selection.dead_letters_of is not None else {}
    return {**RECORD_COLUMNS, **headers, **origin}


def ddl(columns: Mapping[str, str]) -> str:
    """Return columns as a DDL string of Spark SQL."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def check_projection(
    wanted: Iterable[tuple[str, str, bool]], options: ReadOptions
) -> tuple[str, ...]:
    """Return the names of the columns in `.schema(...)`, in its order.

    Args:
        wanted: Name, type and nullability of each column.
        options: Options of the source.

    Raises:
        ConfigError: A column does not exist, has another type, is declared NOT NULL, or is not
            among those of the option `columns`.
    """
    known = _all_columns(options)
    if options.selection.history_of is None:
        known |= HEADERS_COLUMN
    names: list[str] = []
    for name, kind, is_nullable in wanted:
        if name not in known:
            raise ConfigError(f"there is no column {name!r}; there are {', '.join(known)}")
        if kind != known[name]:
            raise ConfigError(f"column {name} is {known[name]}, not {kind}; cast it after reading")
        if not is_nullable:
            raise ConfigError(f"column {name} cannot be NOT NULL: the source may return nulls")
        if name in names:
            raise ConfigError(f"column {name} is in the schema twice")
        names.append(name)
    if not names:
        raise ConfigError(f"the schema has no column; there are {', '.join(known)}")
    if options.columns and set(names) != columns_of(options).keys():
        raise ConfigError(
            f".schema(...) has {', '.join(names)}, and the option columns"
            f" {', '.join(options.columns)}; give one of them"
        )
    return tuple(names)
