"""Messages of a partition that are too old, or that the log has lost.

Shell without tasks: finds out which ones they are.
"""

from collections.abc import Iterator
from typing import Final, final

from broker.handlers.offsets import OffsetsHandler
from broker.queues.reading import RecordReading
from broker.queues.records import SourceRecords
from queue_layer.outcome import Outcome
from queue_layer.queue_partition import QueuePartition
from wire.queues import MessageState

_EXPIRE_EVERY_MS: Final = 60_000
_EXPIRED_AT_ONCE: Final = 10_000
"""Where each message costs something, so that it is some tens of milliseconds."""


@final
class OutdatedMessages:
    """What is to be done away with."""

    def __init__(
        self,
        core: QueuePartition,
        records: SourceRecords,
        reading: RecordReading,
        offsets: OffsetsHandler,
    ) -> None:
        """Look into the log of `records`; `offsets` knows the times of records."""
        self._core = core
        self._records = records
        self._reading = reading
        self._offsets = offsets
        self._expire_at_ms = 0
        self._trimmed = (0, 0, 0)
        """Where the log began when it was looked at last, what was here from then on, and how many
        were dead: those that are to be moved are kept, but they may come back."""

    def is_expiry_due(self, now_ms: int) -> bool:
        """Return whether it is time to look for what is too old; it is not, for a while then."""
        if now_ms < self._expire_at_ms:
            return False
        self._expire_at_ms = now_ms + _EXPIRE_EVERY_MS
        return True

    async def too_old_below(self, now_ms: int) -> int | None:
        """Return below which offset all is too old, as far as the log can tell.

        Of what is damaged it cannot: that stays until it is mended, or the log deletes it.

        Raises:
            BrokerError: The log cannot be read.
        """
        source = self._records.partition()
        oldest_ms = now_ms - self._core.config.retention_ms
        if oldest_ms <= 0:
            return None
        found = await self._offsets.find_time(source, oldest_ms)
        before = source.high_watermark if found.offset is None else found.offset
        core = self._core
        for damaged in source.log.damage:
            if damaged.end_offset > core.low_water_mark:
                before = min(before, damaged.offset)
        await self._reading.drive(self._reading.feed(core, lambda: core.records_from >= before))
        return before

    def slices(self, before: int | None) -> Iterator[int]:
        """Yield the offsets below which to expire messages one after the other, up to the last."""
        if before is None:
            return
        config = self._core.config
        if config.is_fifo or config.has_fairness:
            yield from range(self._core.low_water_mark + _EXPIRED_AT_ONCE, before, _EXPIRED_AT_ONCE)
        yield before

    def trim(self, now_ms: int) -> Outcome[None] | None:
        """Return what to decide about messages that the log has lost; `None` if there are none.

        Raises:
            LeaderNotAvailableError: The log is not here.
        """
        core, start = self._core, self._records.partition().log.log_start_offset
        mark = core.low_water_mark
        if start <= mark:
            return None
        state = (start, mark, core.counts()[MessageState.DEAD])
        if state == self._trimmed:
            return None
        self._trimmed = state
        if core.records_from < start and core.has_moves_below(start):
            # Nobody can read what they said, and some are to be moved: they are there.
            core.records_came(core.records_from, start)
        return core.trim(start, now_ms=now_ms)
