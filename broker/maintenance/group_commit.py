"""Group commit: makes partitions durable, with one sync under way for each.

Shell: owns the flush tasks. The next sync covers all records that arrive during the current one, so
batches grow under load, and no record lingers without load. Checkpoints that only shorten the next
start are written while flushes go on. A broker that is alone syncs a few bytes without a thread, as
long as its disk is fast (decision 0022).
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import final

import trio

from tidelog.broker.maintenance.idle_checkpoints import IdleCheckpoints
from tidelog.broker.metrics.catalog import SYNC_DURATION
from tidelog.broker.partitions.gathering import Gathering
from tidelog.broker.partitions.partition import Partition
from tidelog.isr.durability import Durability
from tidelog.logstore.disk.disk import NO_DESCRIPTOR_ERRNOS
from tidelog.logstore.flush import FlushJob
from tidelog.wire.env.env import Env
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.metrics.metric import Histogram

_LATE_MAX_S = 0.05
_BRIEF_AT_ONCE = 2
"""Maximum number of partitions that are being synced while one of them blocks the loop, itself
included."""
_AGAIN_S = 0.5
"""Time in seconds after which a flush is retried for which no file could be opened."""


@final
class GroupCommit:
    """Syncs partitions, on demand or at intervals."""

    def __init__(self, env: Env, nursery: trio.Nursery) -> None:
        """Run flush tasks in `nursery`; there are none while no records are appended."""
        self._env = env
        self._nursery = nursery
        self.is_alone = False
        """Whether no other broker would take this one for dead if its loop blocked; set by the
        broker."""
        self.idle = IdleCheckpoints(self.request)
        """Writes checkpoints of idle logs; its `run` must run in a task."""
        self.syncs = Histogram(SYNC_DURATION)
        """Seconds of each sync."""
        self._lazy: dict[Partition, None] = {}
        self._gatherings: dict[Partition, Gathering] = {}
        """Decide whether a flush waits for further requests; not attributes of partitions, of which
        one more would take a kilobyte."""
        self._wanted: set[Partition] = set()
        self._under_way: dict[Partition, float] = {}
        """Partitions that are being synced, with the start of the sync (seconds of trio's clock),
        in order."""
        self._ended: trio.Event | None = None
        """Created by a task that waits for the end of another one's work."""
        self._running_count = 0
        self._now_s = loop_clock()

    def appended(self, partition: Partition) -> None:
        """Make appended records durable, at once or in the background, by the durability."""
        if partition.config.durability is Durability.FSYNC:
            self.request(partition)
        else:
            self._lazy[partition] = None

    def appended_lazily(self, partition: Partition) -> None:
        """Make appended records durable in the background: no acknowledgement waits for them."""
        self._lazy[partition] = None

    def request(self, partition: Partition) -> None:
        """Start a flush; if one runs, another follows it."""
        self._wanted.add(partition)
        partition.is_flush_wanted = True
        gathering = self._gatherings.get(partition)
        if gathering is not None:
            gathering.requested += 1
        if not (partition.is_flushing or partition.is_held):
            partition.is_flushing = True
            self._running_count += 1
            self._nursery.start_soon(self._flush, partition)

    def flush_lazy(self) -> None:
        """Start flushes of all partitions that wait for a background flush."""
        lazy, self._lazy = self._lazy, {}
        for partition in lazy:
            self.request(partition)

    def take_wanted(self) -> set[Partition]:
        """Return the partitions with a flush request since the last call."""
        wanted, self._wanted = self._wanted, set()
        return wanted

    def stalled(self, for_s: float) -> list[Partition]:
        """Return partitions with a sync that has run longer than `for_s` and has not ended."""
        late_before = self._now_s() - for_s
        found: list[Partition] = []
        for partition, begun in self._under_way.items():
            if begun >= late_before:
                break
            found.append(partition)
        return found

    async def forget(self, partition: Partition, *, is_for_good: bool = False) -> None:
        """Stop flushing a partition, and return when no task uses its files.

        If it `is_for_good`, and no other files will ever have their names, files that retention has
        taken out of the log may still be in removal.
        """
        self._lazy.pop(partition, None)
        self.idle.forget(partition)
        while (
            partition.is_held
            or self._is_syncing(partition)
            or (partition.is_removing and not is_for_good)
        ):
            await self._wait_ended()
        self._gatherings.pop(partition, None)

    @asynccontextmanager
    async def hold(self, partition: Partition) -> AsyncGenerator[None, None]:
        """Keep all tasks from the files of a log; the block begins when none uses them."""
        partition.is_held = True
        try:
            while self._is_syncing(partition) or partition.is_removing:
                await self._wait_ended()
            yield
        finally:
            partition.is_held = False
            self._tell_ended()
            if partition.is_flush_wanted:
                self.request(partition)

    @asynccontextmanager
    async def removing(self, partition: Partition) -> AsyncGenerator[None, None]:
        """Keep `hold` from a log while the block removes files of it."""
        partition.is_removing = True
        try:
            yield
        finally:
            partition.is_removing = False
            self._tell_ended()

    @asynccontextmanager
    async def swapping(self, partition: Partition) -> AsyncGenerator[None, None]:
        """Keep `hold` and removals from a log while the block swaps some of its files.

        The block begins when neither is under way; flushes go on.
        """
        while partition.is_held or partition.is_removing:
            await self._wait_ended()
        async with self.removing(partition):
            yield

    async def flush_now(self, partition: Partition) -> None:
        """Return when all records appended before this call are durable.

        Raises:
            LogOfflineError: The disk failed.
        """
        # A flush under way may have begun too early; the one after it has not.
        wanted = partition.flushes_begun + 1
        self.request(partition)
        while partition.is_held or (partition.is_flushing and partition.flushes_ended < wanted):
            await self._wait_ended()
        partition.log.require_online()

    async def wait_idle(self) -> None:
        """Wait until no flush is under way."""
        while self._running_count:
            await self._wait_ended()

    async def _flush(self, partition: Partition) -> None:
        try:
            while partition.is_flush_wanted and not partition.is_held:
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
        self._under_way[partition] = self._now_s()
        try:
            while log.is_checkpoint_due and partition.is_checkpointing:
                await self._wait_ended()  # One checkpoint at a time, the older one first.
            if self.is_alone:
                await self._gather(partition)
            flush = log.begin_flush(may_defer_checkpoint=True)
            if flush is None:
                return
            partition.flushes_begun += 1
            began_at = self._now_s()
            await self._env.run_in_thread(flush.run, is_brief=self._is_brief(flush))
            self.syncs.observe(self._now_s() - began_at)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR_ERRNOS:
                await self._try_again(partition, error)
                return
            log.fail(f"fsync failed: {error}", durable_intact=True)
            partition.note_status(f"fsync failed: {error}")
        else:
            log.end_flush(flush)
            if not flush.had_no_room:
                self.idle.flushed(partition)
            partition.progressed()
            self._begin_checkpoint(partition)
            partition.probe(
                "log_flushed",
                severity="debug",
                durable_end_offset=log.durable_end_offset,
                had_room=not flush.had_no_room,
            )
        finally:
            del self._under_way[partition]
        partition.flushes_ended += 1
        self._tell_ended()

    async def _gather(self, partition: Partition) -> None:
        """Let records that arrive in this turn of the loop join the flush, if some usually do.

        None can during the sync.
        """
        gathering = self._gatherings.get(partition)
        if gathering is None:
            gathering = self._gatherings[partition] = Gathering()
        if gathering.is_due():
            await trio.lowlevel.checkpoint()
        gathering.begins()

    def _is_brief(self, flush: FlushJob) -> bool:
        """Return whether a flush may block the loop, as it takes no longer than waking a thread.

        Several flushes at once are faster in threads: file systems merge their commits.
        """
        is_among_few = len(self._under_way) <= _BRIEF_AT_ONCE
        return is_among_few and flush.is_small and self.is_alone

    async def _try_again(self, partition: Partition, error: OSError) -> None:
        """Schedule the flush again that could not begin for lack of file descriptors."""
        partition.probe(
            "flush_delayed",
            severity="error",
            reason=str(error),
        )
        partition.flushes_begun -= 1
        partition.is_flush_wanted = True
        await trio.sleep(_AGAIN_S)

    def _begin_checkpoint(self, partition: Partition) -> None:
        checkpoint = partition.log.begin_checkpoint()
        if checkpoint is not None:
            partition.is_checkpointing = True
            self._running_count += 1
            self._nursery.start_soon(self._write_checkpoint, partition, checkpoint)

    async def _write_checkpoint(self, partition: Partition, checkpoint: FlushJob) -> None:
        log = partition.log
        try:
            await self._env.run_in_thread(checkpoint.run)
        except OSError as error:
            log.fail(f"writing a checkpoint failed: {error}", durable_intact=True)
            partition.note_status(f"writing a checkpoint failed: {error}")
        else:
            log.end_checkpoint(checkpoint)
            partition.probe(
                "log_checkpointed",
                severity="debug",
                had_room=not checkpoint.had_no_room,
            )
        finally:
            partition.is_checkpointing = False
            self._running_count -= 1
            self._tell_ended()
        if log.is_checkpoint_useful:  # The log was rolled meanwhile.
            self.request(partition)

    @staticmethod
    def _is_syncing(partition: Partition) -> bool:
        return partition.is_flushing or partition.is_checkpointing

    async def _wait_ended(self) -> None:
        """Wait until a flush, a checkpoint, a hold or a removal has ended."""
        if self._ended is None:
            self._ended = trio.Event()
        await self._ended.wait()

    def _tell_ended(self) -> None:
        if self._ended is not None:
            self._ended.set()
            self._ended = None
