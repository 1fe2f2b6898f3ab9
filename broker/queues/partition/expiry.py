"""Messages of a partition that are too old, or that the log has lost.

Shell without tasks: finds out which ones they are.
"""

from collections.abc import Iterator
from typing import Final, final

from tidelog.broker.partitions.offset_search import OffsetSearch
from tidelog.broker.queues.partition.source_records import SourceRecords
from tidelog.queue_layer.commands.remove import expiry_end, removal_end
from tidelog.queue_layer.outcome import Outcome
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.wire.env.env import Clock
from tidelog.wire.errors import CorruptRecordError

_EXPIRE_EVERY_MS: Final = 60_000


@final
class Expiry:
    """What is to be done away with."""

    def __init__(
        self,
        core: QueuePartition,
        records: SourceRecords,
        *,
        search: OffsetSearch,
    ) -> None:
        """Look into the log of `records`; `offsets` knows the times of records."""
        self._core = core
        self._records = records
        self._search = search
        self._expire_at_ms = 0
        self._trimmed = (0, 0, 0)
        """Where the log began when it was looked at last, what was here from then on, and how many
        were dead: those that are to be moved are kept, but they may come back."""
        self._trimmed_to: int | None = None
        """How far the trimming is that goes on, if it does."""
        self._dead_before = 0
        """How many were dead when it began."""

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
        retention_ms = self._core.config.retention_ms
        if retention_ms is None or retention_ms >= now_ms:
            return None
        oldest_ms = now_ms - retention_ms
        try:
            found = await self._search.find_time(source, oldest_ms)
        except CorruptRecordError as error:
            before = error.offset or 0  # All before is too old.
        else:
            before = source.high_watermark if found.offset is None else found.offset
        core = self._core
        for damaged in source.log.damage:
            if damaged.end_offset > core.state.low_water_mark:
                before = min(before, damaged.offset)
        await self._records.drive(
            self._records.feed(core, lambda: core.state.records_from >= before)
        )
        return before

    def slices(self, before: int | None) -> Iterator[int]:
        """Yield the offsets below which to expire messages one after the other, up to the last."""
        offset = self._core.state.low_water_mark
        while before is not None and offset < before:
            offset = expiry_end(self._core.state, offset, before)
            yield offset

    @property
    def is_trimming(self) -> bool:
        """Whether `trim` has more to do, when others had their turn."""
        return self._trimmed_to is not None

    def trim(self, clock: Clock) -> Outcome[None] | None:
        """Return what to decide about messages that the log has lost; `None` if there are none.

        Of very many the first ones; then it `is_trimming`.

        Raises:
            LeaderNotAvailableError: The log is not here.
        """
        core, start = self._core, self._records.partition().log.log_start_offset
        mark = core.state.low_water_mark
        if start <= mark:
            self._trimmed_to = None
            return None
        if self._trimmed_to is None:
            self._dead_before = core.state.counts().dead
            if (start, mark, self._dead_before) == self._trimmed:
                return None
        if core.state.records_from < start and core.state.moves.has_below(start):
            # Nobody can read what they said, and some are to be moved: they are there.
            core.state.on_records(core.state.records_from, start)
        end = removal_end(core.state, max(mark, self._trimmed_to or 0), start)
        self._trimmed_to = end if end < start else None
        if end == start:
            self._trimmed = (start, mark, self._dead_before)
        return core.trim(end, now_ms=clock.now_ms())
