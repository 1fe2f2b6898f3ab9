"""Records column by column, whether they come from one batch or were put together.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

from tidelog.wire.batch.batch_columns import EvenBytes
from tidelog.wire.batch.record_batch import Headers
from tidelog.wire.messages.queues import ORIGIN_QUEUE_HEADER


class RecordColumns(Protocol):
    """Records of one partition; all columns are equally long. A `RecordBatch` is one."""

    @property
    def topic(self) -> str:
        """The name of their topic."""
        ...

    @property
    def partition(self) -> int:
        """The number of their partition."""
        ...

    @property
    def has_append_time(self) -> bool:
        """Whether a broker gave them their times."""
        ...

    @property
    def offsets(self) -> Sequence[int]:
        """Ascending."""
        ...

    @property
    def first_timestamp_ms(self) -> int:
        """What the deltas are counted from: Unix time in milliseconds."""
        ...

    @property
    def timestamp_deltas(self) -> Sequence[int] | None:
        """The milliseconds from there to the time of each; `None` if all have the first one."""
        ...

    @property
    def keys(self) -> Sequence[bytes | None]:
        """The key of each."""
        ...

    @property
    def values(self) -> Sequence[bytes | None]:
        """The value of each."""
        ...

    @property
    def headers(self) -> Sequence[Headers]:
        """The headers of each."""
        ...

    def size_of(self, column: str) -> int | None:
        """Return the bytes of keys (`"keys"`) or values, about; `None` if no record has one."""
        ...

    def even_bytes(self, column: str) -> EvenBytes | None:
        """Return keys (`"keys"`) or values as a batch has them, if they seem equally long there."""
        ...

    def __len__(self) -> int:
        """Return how many there are."""
        ...


@final
@dataclass(frozen=True, slots=True)
class GivenRecords:
    """Records whose columns are there already."""

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

    def even_bytes(self, column: str) -> EvenBytes | None:
        """Return that they are in no batch."""
        del column
        return None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.offsets)


def only(
    records: RecordColumns, rows: Sequence[int], values: Sequence[bytes | None]
) -> GivenRecords:
    """Return some of the records, with other values.

    Args:
        records: All of them.
        rows: Which to keep, ascending.
        values: Of all of them.
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
    """Return the dead letters of one queue, `None` if there are none.

    Other queues may share the topic, and people may send to it themselves.
    """
    wanted = ORIGIN_QUEUE_HEADER, queue.encode()
    rows = [row for row, headers in enumerate(records.headers) if wanted in headers]
    if len(rows) == len(records):
        return records
    return only(records, rows, records.values) if rows else None
