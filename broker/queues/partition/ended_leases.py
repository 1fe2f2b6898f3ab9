"""Leases that ended by time, each of which is counted once."""

from typing import final

from tidelog.broker.queues.partition.queue_summary import QueueSummary
from tidelog.queue_layer.queue_partition import QueuePartition


@final
class EndedLeases:
    """The ended leases of one partition, from its load on.

    A load applies the whole journal, and so ends leases again whose end has been counted.
    """

    __slots__ = ("_core", "_counted_to_ms", "_is_loaded")

    def __init__(self, core: QueuePartition, before: QueueSummary | None) -> None:
        """Watch `core`.

        `before` is the summary with which the same leader unloaded the partition. Without one,
        earlier leaders have counted what ended before the load; and without messages in flight,
        this leader has.
        """
        self._core = core
        self._counted_to_ms = None if before is None else before.time_ms or None
        self._is_loaded = False

    def applied(self) -> None:
        """Leave out what was counted; the journal is applied, and time not advanced to now."""
        if self._counted_to_ms is not None:
            self._core.state.advance(self._counted_to_ms)
            self._core.state.take_ended_leases()

    def loaded(self) -> None:
        """Count from now on."""
        if self._counted_to_ms is None:
            self._core.state.take_ended_leases()
        self._is_loaded = True

    def take(self) -> int:
        """Return the number of messages whose leases have ended since the last call."""
        return self._core.state.take_ended_leases() if self._is_loaded else 0
