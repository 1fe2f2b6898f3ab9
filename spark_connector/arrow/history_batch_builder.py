"""Builder of Arrow batches from the history events of a queue.

Pure: no clock, no I/O. Imports pyarrow, so only readers import it.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, final

import pyarrow as pa

from tidelog.client.queue.inspect.history import HistoryEvent
from tidelog.spark_connector.arrow.column_builders import ROWS_MAX

_MS: Final = pa.timestamp("ms", tz="UTC")
_TIME: Final = pa.timestamp("us", tz="UTC")
_Read = Callable[[HistoryEvent], Any]
_READ: Final[dict[str, _Read]] = {
    "timestamp": attrgetter("time_ms"),
    "event": attrgetter("kind"),
    "offset": attrgetter("offset"),
    "holder": lambda event: event.holder or None,
    "receiveCount": lambda event: None if event.offset is None else event.receive_count,
    "leaseId": attrgetter("lease_id"),
    "visibleAt": attrgetter("visible_at_ms"),
    "reason": lambda event: event.reason or None,
    "belowOffset": attrgetter("below_offset"),
    "messageCount": attrgetter("message_count"),
    "targetPartition": lambda event: event.target[1] if event.target and event.target[0] else None,
    "journalOffset": attrgetter("journal_offset"),
}
"""Readers of the columns that do not depend on the queue, by column name."""


@final
class HistoryBatchBuilder:
    """History events that accumulate to one Arrow batch."""

    def __init__(
        self, schema: pa.Schema, queue: str, partition: int, *, name_of: Callable[[bytes], str]
    ) -> None:
        """Create an empty builder; `name_of` returns the name of a topic id."""
        self._schema = schema
        self._name_of = name_of
        self._read: dict[str, _Read] = {
            **_READ,
            "queue": lambda _: queue,
            "partition": lambda _: partition,
            "targetTopic": self._target_topic,
        }
        self._events: list[HistoryEvent] = []

    @property
    def is_full(self) -> bool:
        """Whether the rows are enough for one Arrow batch."""
        return len(self._events) >= ROWS_MAX

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self._events)

    def add(self, event: HistoryEvent) -> None:
        """Add a row."""
        self._events.append(event)

    def take(self) -> pa.RecordBatch:
        """Return all rows as one batch and reset the builder."""
        events, self._events = self._events, []
        arrays = [self._array(field, events) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, events: Sequence[HistoryEvent]) -> pa.Array:
        found = list(map(self._read[field.name], events))
        if field.type == _TIME:
            return pa.array(found, _MS).cast(_TIME)
        return pa.array(found, field.type)

    def _target_topic(self, event: HistoryEvent) -> str | None:
        return self._name_of(event.target[0]) if event.target and event.target[0] else None
