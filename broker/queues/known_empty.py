"""Whether a queue that had nothing to hand out can have something now.

Plain calls; no clock, no I/O.
"""

from typing import final

from queue_layer.queue_partition import QueuePartition


@final
class KnownEmpty:
    """What was so when somebody looked in vain.

    Of one partition: many receives wait at several ones, and most of what happens to one of these
    gives nothing to those who wait at the others.
    """

    __slots__ = ("_high_watermark", "_until_ms", "_version")

    def __init__(self) -> None:
        """Know nothing."""
        self._version = -1
        self._high_watermark = 0
        self._until_ms: int | None = None

    def found_none(self, core: QueuePartition, high_watermark: int) -> None:
        """Take note that nobody can be given anything, with all records known below an offset."""
        self._version = core.version
        self._high_watermark = high_watermark
        self._until_ms = core.next_deadline_ms

    def forget(self) -> None:
        """Take note that it may be otherwise, whatever was so."""
        self._version = -1

    def holds(self, core: QueuePartition, high_watermark: int, now_ms: int) -> bool:
        """Return whether it is still so, without a doubt."""
        return (
            core.version == self._version
            and high_watermark == self._high_watermark
            and (self._until_ms is None or now_ms < self._until_ms)
        )
