"""Records as columns, from one batch or assembled from several.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

from tidelog.wire.batch.byte_column import ByteColumn
from tidelog.wire.batch.record_batch import Headers
from tidelog.wire.messages.queues import ORIGIN_QUEUE_HEADER


class RecordColumns(Protocol):
    """Records of one partition, with columns of equal length; `RecordBatch` implements it."""

    @property
    def topic(self) -> str:
        """Name of the topic."""
        ...

    @property
    def partition(self) -> int:
        """Number of the partition."""
        ...

    @property
    def has_append_time(self) -> bool:
        """Whether the timestamps are those of the broker (log append time)."""
        ...

    @property
    def offsets(self) -> Sequence[int]:
        """Offsets, ascending."""
        ...

    @property
    def first_timestamp_ms(self) -> int:
        """Base of the timestamp deltas, in Unix milliseconds."""
        ...

    @property
    def timestamp_deltas(self) -> Sequence[int] | None:
        """Milliseconds from the first timestamp, per record; `None` if all have the first one."""
        ...

    @property
    def keys(self) -> Sequence[bytes | None]:
        """Keys, per record."""
        ...

    @property
    def values(self) -> Sequence[bytes | None]:
        """Values, per record."""
        ...

    @property
    def headers(self) -> Sequence[Headers]:
        """Headers, per record."""
        ...

    def size_of(self, column: str) -> int | None:
        """Return the approximate bytes of `"keys"` or `"values"`; `None` if no record has any."""
        ...

    def byte_column(self, column: str) -> ByteColumn | None:
        """Return `"keys"` or `"values"` without objects; `None` if only `keys`, `values` have them.

        The parts agree with each other: see `ByteColumn.check`.
        """
        ...

    def __len__(self) -> int:
        """Return the number of records."""
        ...


@final
@dataclass(frozen=True, slots=True)
class GivenRecords:
    """Records with decoded columns."""

    topic: str
    partition: int
    has_append_time: bool
    offsets: Sequence[int]
    first_timestamp_ms: int
    timestamp_deltas: Sequence[int] | None
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]

    def size_of(self, column: str) -> int | None:
        """Return the bytes of keys or values."""
        return sum(map(len, filter(None, self.keys if column == "keys" else self.values)))

    def byte_column(self, column: str) -> ByteColumn | None:
        """Return `None`: decoded records have no encoded form."""
        del column
        return None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.offsets)


def only(
    records: RecordColumns, rows: Sequence[int], values: Sequence[bytes | None]
) -> GivenRecords:
    """Return a selection of records, with other values.

    Args:
        records: All records.
        rows: Rows to keep, ascending.
        values: The new values of all records.
    """
    offsets, deltas = records.offsets, records.timestamp_deltas
    keys, headers = records.keys, records.headers
    return GivenRecords(
        records.topic,
        records.partition,
        records.has_append_time,
        [offsets[row] for row in rows],
        records.first_timestamp_ms,
        None if deltas is None else [deltas[row] for row in rows],
        [keys[row] for row in rows],
        [values[row] for row in rows],
        [headers[row] for row in rows],
    )


def of_origin(records: RecordColumns, queue: str) -> RecordColumns | None:
    """Return the dead letters of one queue, or `None` if there are none.

    The topic may also hold dead letters of other queues, and records of ordinary producers.
    """
    wanted = ORIGIN_QUEUE_HEADER, queue.encode()
    rows = [row for row, headers in enumerate(records.headers) if wanted in headers]
    if len(rows) == len(records):
        return records
    return only(records, rows, records.values) if rows else None
