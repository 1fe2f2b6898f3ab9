"""Warning of messages that soon expire and were not deleted by a consumer.

Shell: owns one task. Ages count, that of the queue and that of its topic; a limit by size may be
reached at any time. A queue that is not in memory is loaded only when its log has a record that may
be near the limit, and then once: its messages do not change until it is loaded again.
"""

from typing import Final, final
from weakref import WeakKeyDictionary

import msgspec
import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.queues.queue_view import QueueView
from tidelog.broker.queues.supervisor import surviving
from tidelog.isr.leader import PartitionLeader
from tidelog.wire.errors import BrokerError

_ROUND_S: Final = 60.0
_PARTITIONS_AT_ONCE: Final = 100
"""Number of partitions checked before other tasks run."""
_REPEAT_MS: Final = 3_600_000
"""Time in milliseconds before a queue is reported again."""
_LOADING_S: Final = 5.0
"""Maximum time in seconds that a slow load delays other queues."""
_NEAR: Final = 0.9
"""Fraction of the retention time at which a message is reported."""


class _Oldest(msgspec.Struct, frozen=True, gc=False):
    """A bound of the messages of one partition of a queue: none is below, and none is older."""

    offset: int
    timestamp_ms: int
    is_exact: bool = False
    """Whether it is the oldest message, unless the queue was loaded since."""


@final
class RetentionWarning:
    """Checks the oldest message of every queue partition that this broker leads."""

    def __init__(self, server: QueueServer) -> None:
        """Check the queues of `server`; `run` must run in a task."""
        self._server = server
        self._oldest: WeakKeyDictionary[PartitionLeader, _Oldest] = WeakKeyDictionary()
        """By the leader of the journal: a new leader starts without a bound."""
        self._warned_at_ms: dict[bytes, int] = {}
        """Time of each queue's report within the last `_REPEAT_MS`; Unix milliseconds."""

    async def run(self) -> None:
        """Check all queues once a minute, until cancelled."""
        while True:
            await trio.sleep(_ROUND_S)
            now_ms = self._server.env.clock.now_ms()
            self._warned_at_ms = {
                queue_id: at_ms
                for queue_id, at_ms in self._warned_at_ms.items()
                if now_ms - _REPEAT_MS < at_ms <= now_ms
            }
            for number, partition in enumerate(self._server.partitions.all()):
                if number % _PARTITIONS_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
                if partition.queue_name and partition.leader is not None:
                    with surviving(f"checking the age of messages in {partition.log.directory}"):
                        await self._look_at(partition, partition.leader)

    async def _look_at(self, journal: Partition, leader: PartitionLeader) -> None:
        try:
            view = self._server.view(journal.topic_id)
            source = self._server.partitions.replica(view.source_id, journal.number)
            if source is not None and source.leader is not None and not source.is_held:
                await self._check(view, source, leader)
        except (BrokerError, trio.TooSlowError):
            pass  # Another broker serves it now, or it cannot be read: both are reported elsewhere.

    async def _check(self, view: QueueView, source: Partition, leader: PartitionLeader) -> None:
        ages = (view.retention_ms, source.log.config.retention_ms)
        retention_ms = min((age for age in ages if age is not None), default=None)
        if retention_ms is None:
            return
        hosted = self._server.loaded(view.queue_id, source.number)
        oldest = self._oldest.get(leader)
        log_start_offset = source.log.log_start_offset
        if hosted is not None and hosted.is_loaded:
            low_water_mark = hosted.core.state.low_water_mark
            # The queue was moved back by a seek.
            if oldest is None or low_water_mark < oldest.offset:
                oldest = await self._oldest_from(source, low_water_mark)
            else:
                oldest = _Oldest(low_water_mark, oldest.timestamp_ms)
        elif oldest is None:
            oldest = await self._oldest_from(source, log_start_offset)
        if oldest.offset < log_start_offset or (
            self._is_near(oldest, retention_ms) and not oldest.is_exact
        ):
            with trio.fail_after(_LOADING_S):
                low_water_mark = await self._low_water_mark(view, source)
            oldest = await self._oldest_from(source, low_water_mark, is_exact=True)
        self._oldest[leader] = oldest
        if self._is_near(oldest, retention_ms) and oldest.offset < source.high_watermark:
            self._warn(view, source.number, oldest, retention_ms=retention_ms)

    async def _oldest_from(
        self, source: Partition, offset: int, *, is_exact: bool = False
    ) -> _Oldest:
        timestamp_ms = await self._server.search.time_at(source, offset)
        if timestamp_ms is None:  # Later records will be younger than now.
            return _Oldest(source.high_watermark, self._server.env.clock.now_ms(), is_exact)
        return _Oldest(offset, timestamp_ms, is_exact)

    async def _low_water_mark(self, view: QueueView, source: Partition) -> int:
        """Return the offset below which a queue has no messages.

        Messages whose records the log has deleted are removed, and reported.

        Raises:
            BrokerError: This broker does not serve the queue, or its log cannot be read or written.
        """
        server, key = self._server, (view.queue_id, source.number)
        was_here = server.loaded(*key) is not None
        hosted = server.find(*key)
        await hosted.wait_loaded()
        await hosted.trim_all()
        if not was_here:
            server.unload_soon(hosted)
        return hosted.core.state.low_water_mark

    def _is_near(self, oldest: _Oldest, retention_ms: int) -> bool:
        return self._age_ms(oldest) > retention_ms * _NEAR

    def _age_ms(self, oldest: _Oldest) -> int:
        return self._server.env.clock.now_ms() - oldest.timestamp_ms

    def _warn(self, view: QueueView, number: int, oldest: _Oldest, *, retention_ms: int) -> None:
        if view.queue_id in self._warned_at_ms:
            return
        env = self._server.env
        self._warned_at_ms[view.queue_id] = env.clock.now_ms()
        env.probe(
            "messages_expire_soon",
            severity="warning",
            queue=view.name,
            partition=number,
            oldest_age_ms=self._age_ms(oldest),
            retention_ms=retention_ms,
        )
