"""Group commit: makes partitions durable, one sync under way for each.

Shell: owns the flush tasks. Whatever arrives while a sync runs is covered by the next one, so
batches grow by themselves under load and nothing lingers when there is none.
"""

from typing import final

import trio

from broker.partition import Partition
from isr.durability import Durability
from wire.env import Env

_LATE_MAX_S = 0.05


@final
class Flusher:
    """Syncs partitions, on demand or when their time has come."""

    def __init__(self, env: Env, nursery: trio.Nursery) -> None:
        """Run flush tasks in `nursery`; there are none while nothing is appended."""
        self._env = env
        self._nursery = nursery
        self._lazy: dict[Partition, None] = {}
        self._ended = trio.Event()
        self._running_count = 0

    def appended(self, partition: Partition) -> None:
        """Make what was appended durable: at once or in the background, as the topic says."""
        if partition.leader.durability is Durability.FSYNC:
            self.request(partition)
        else:
            self._lazy[partition] = None

    def request(self, partition: Partition) -> None:
        """Start a flush, unless one runs; then another follows it."""
        partition.is_flush_wanted = True
        if not partition.is_flushing:
            partition.is_flushing = True
            self._running_count += 1
            self._nursery.start_soon(self._flush, partition)

    def flush_lazy(self) -> None:
        """Start flushes of all partitions whose time is now."""
        lazy, self._lazy = self._lazy, {}
        for partition in lazy:
            self.request(partition)

    async def forget(self, partition: Partition) -> None:
        """Flush a partition no more, and return when nobody touches its files."""
        self._lazy.pop(partition, None)
        while partition.is_flushing:
            await self._ended.wait()

    async def flush_now(self, partition: Partition) -> None:
        """Return when everything appended before this call is durable.

        Raises:
            LogOfflineError: The disk failed.
        """
        # One that is under way may have begun too early; the one after it has not.
        wanted = partition.flushes_begun + 1
        self.request(partition)
        while partition.is_flushing and partition.flushes_ended < wanted:
            await self._ended.wait()
        partition.log.require_online()

    async def wait_idle(self) -> None:
        """Wait until no flush is under way."""
        while self._running_count:
            await self._ended.wait()

    async def _flush(self, partition: Partition) -> None:
        try:
            while partition.is_flush_wanted:
                partition.is_flush_wanted = False
                await self._flush_once(partition)
        finally:
            partition.is_flushing = False
            self._running_count -= 1
            self._tell_ended()

    async def _flush_once(self, partition: Partition) -> None:
        log = partition.log
        if self._env.buggify("checkpoint early"):
            log.request_checkpoint()
        if self._env.buggify("flush late"):
            await trio.sleep(self._env.random.uniform(0, _LATE_MAX_S))
        flush = log.begin_flush()
        if flush is None:
            return
        partition.flushes_begun += 1
        try:
            await self._env.offload(flush.run)
        except OSError as error:
            log.fail(f"fsync failed: {error}")
            partition.note_status(f"fsync failed: {error}")
        else:
            log.end_flush(flush)
            partition.progressed()
            self._env.probe(
                "log_flushed",
                severity="debug",
                directory=log.directory,
                durable_end_offset=log.durable_end_offset,
                had_room=not flush.had_no_room,
            )
        partition.flushes_ended += 1
        self._tell_ended()

    def _tell_ended(self) -> None:
        if self._ended.statistics().tasks_waiting:
            self._ended.set()
            self._ended = trio.Event()
