"""Expiry of messages that are too old, or whose records the log has deleted.

Shell without tasks: determines these messages.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, final

from tidelog.broker.partitions.offset_search import OffsetSearch
from tidelog.broker.queues.partition.source_records import SourceRecords
from tidelog.queue_layer.commands.remove import expiry_end, next_open, removal_end
from tidelog.queue_layer.outcome import Outcome
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.wire.errors import CorruptRecordError

_PAUSE_MS: Final = 1_000
"""Minimum time in milliseconds between two checks for old messages."""
_STEP_MS: Final = 100
"""The same for each step of the last check: so checks take a few percent of the time."""
_UNTIMED_MS: Final = 5_000
"""Time in milliseconds until the next check when no time decides, as at the start of a broker."""
_FAR_MS: Final = 3_600_000
"""Time in milliseconds to the next expiry of a queue whose messages do not expire."""
_LOOK_MS: Final = 60_000
"""Maximum time in milliseconds until the next check: senders may set the times of records."""


@final
class Expiry:
    """Messages to expire or trim."""

    def __init__(
        self,
        core: QueuePartition,
        records: SourceRecords,
        *,
        search: OffsetSearch,
    ) -> None:
        """Examine the log of `records`; `search` finds the times of records."""
        self._core = core
        self._records = records
        self._search = search
        self.due_ms = 0
        """Time of the next check for old messages; Unix milliseconds of the broker's clock."""
        self.expires_ms = 0
        """Time before which no message expires, unless senders set the times of records."""
        self._trimmed = (0, 0, 0)
        """At the last check: the log start offset, the low water mark, and the number of dead
        messages. Dead messages that are to be moved are kept, but they may come back."""
        self.trimmed_to: int | None = None
        """Offset reached by the trim under way, which goes on after other tasks have run; `None`
        without one. To be read only."""
        self.trimmed_below = -1
        """Log start offset below which `trim` has certainly nothing to do; a seek resets it."""
        self._dead_before = 0
        """Number of dead messages when that trim began."""

    def postpone(self, now_ms: int, *, has_time: bool = True) -> None:
        """Check later: after an error, or sooner, because no time decides now."""
        self.due_ms = self.expires_ms = now_ms + (_LOOK_MS if has_time else _UNTIMED_MS)

    async def wait_ms(
        self, before: int | None, *, kept_until_ms: int | None, steps: int, now_ms: int
    ) -> int:
        """Return the time from a check, which removed messages below `before`, to the next expiry.

        Args:
            before: Exclusive end of the messages that were too old.
            kept_until_ms: When the first delayed message below expires; Unix milliseconds.
            steps: Number of decisions of the check.
            now_ms: Its time, by the clock that decides about deletion.
        """
        retention_ms = self._core.config.retention_ms
        if retention_ms is None:
            return _FAR_MS
        offset = max(before or 0, self._core.state.low_water_mark)
        due_ms = now_ms + retention_ms
        with suppress(CorruptRecordError):  # The time of a damaged record is unknown.
            sent_ms = await self._search.time_at(self._records.partition(), offset)
            due_ms = due_ms if sent_ms is None else min(due_ms, sent_ms + retention_ms)
        due_ms = due_ms if kept_until_ms is None else min(due_ms, kept_until_ms)
        return max(due_ms - now_ms, _PAUSE_MS, _STEP_MS * steps)

    def restart(self) -> None:
        """Check everything again: the queue was moved, or has other settings."""
        self.due_ms, self.trimmed_below = 0, -1

    def schedule(self, now_ms: int, wait_ms: int) -> None:
        """Set the time of the next check, by the time until the next expiry."""
        self.expires_ms = now_ms + wait_ms
        self.due_ms = now_ms + min(wait_ms, _LOOK_MS)

    async def too_old_below(self, now_ms: int) -> int | None:
        """Return the offset below which all messages are too old, as far as the log can tell.

        The age of damaged records is unknown: they stay until they are repaired, or the log deletes
        them.

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
            before = error.offset or 0  # All messages before the damage are too old.
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

    def slices(self, before: int | None) -> Iterator[tuple[int, int]]:
        """Yield first offsets and ends between which to expire messages in steps."""
        state = self._core.state
        offset = state.low_water_mark
        while before is not None and (offset := next_open(state, offset)) < before:
            end = expiry_end(state, offset, before)
            yield offset, end
            offset = end

    def trim(self, now_ms: int) -> Outcome[None] | None:
        """Return the decision about messages that the log has deleted; `None` if there are none.

        Of very many only the first ones; `trimmed_to` tells of the rest.

        Raises:
            LeaderNotAvailableError: This broker has no replica of the log.
        """
        core, start = self._core, self._records.partition().log.log_start_offset
        mark = core.state.low_water_mark
        if start <= mark:
            self.trimmed_to, self.trimmed_below = None, start
            return None
        if self.trimmed_to is None:
            self._dead_before = core.state.counts().dead
            if (start, mark, self._dead_before) == self._trimmed:
                return None
        if core.state.records_from < start and core.state.moves.has_below(start):
            # Their contents are unreadable, and some are to be moved: count them as messages.
            core.state.on_records(core.state.records_from, start)
        end = removal_end(core.state, max(mark, self.trimmed_to or 0), start)
        self.trimmed_to = end if end < start else None
        if end == start:
            self._trimmed = (start, mark, self._dead_before)
        return core.trim(end, now_ms=now_ms)
