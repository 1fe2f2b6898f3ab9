"""Compactor: cleans logs in the background, in steps, at a limited rate (Kafka: LogCleaner).

Shell: owns one task. It cleans one log at a time, since the memory limit is for one. A log that is
late comes first, then the one with the largest dirty part. Steps run in a thread; only the rename
that decides which files count happens in between.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, final

import msgspec
import trio

from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.logstore.compaction.cleaner_run import CleanerRun, LogToClean
from tidelog.logstore.compaction.policy import CompactionConfig
from tidelog.logstore.compaction.segment_rewrite import RewriteFailedError
from tidelog.logstore.disk.disk import PASSING_ERRNOS, Disk
from tidelog.logstore.log import LogStatus
from tidelog.logstore.segments.log_slice import corrupt
from tidelog.logstore.segments.segment_format import SegmentHeader
from tidelog.wire.env.env import Env
from tidelog.wire.errors import CorruptRecordError, KeyUnavailableError

_STEPS_PER_S: Final = 8
_STEP_BYTES_MIN: Final = 64 << 10
_STEP_BYTES_MAX: Final = 1 << 20


class CompactionProgress(msgspec.Struct, frozen=True):
    """Progress of compaction since the start."""

    rounds_ended: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    dirty_ratio: float = 0.0
    """Dirty ratio of the dirtiest log at the last check, above 1 if it is late; 0 if none is
    due."""
    last_error: str = ""
    """Error of the last round that failed; empty if none has failed."""


class CompactionLimits(msgspec.Struct, frozen=True):
    """Limits on the resources that compaction uses."""

    bytes_per_s: int
    """Average rate at which compaction reads, in bytes per second."""
    memory_bytes: int
    """Memory in bytes for the keys of the log that is being cleaned."""


@final
class Compactor:
    """Cleans the dirty logs."""

    def __init__(
        self,
        env: Env,
        disk: Disk,
        group_commit: GroupCommit,
        *,
        limits: CompactionLimits,
        partitions: Callable[[], Sequence[Partition]],
        config_of: Callable[[Partition], CompactionConfig | None],
        deletion_ms: Callable[[], int | None] | None = None,
    ) -> None:
        """Clean those of `partitions` that have a config; run `run` in a task.

        `deletion_ms` returns the time that decides about deletion by time: `None` while nothing is
        compacted, since tombstones and young segments are kept by time.
        """
        self._deletion_ms = env.clock.now_ms if deletion_ms is None else deletion_ms
        self._env = env
        self._disk = disk
        self._group_commit = group_commit
        self._limits = limits
        self._partitions = partitions
        self._config_of = config_of
        self._working = trio.CancelScope()
        self.progress = CompactionProgress()

    async def run(self, interval_s: Callable[[], float]) -> None:
        """Clean dirty logs, until cancelled or stopped.

        Check for them every `interval_s`, which may change at any time.
        """
        with self._working:
            while True:
                await trio.sleep(interval_s())
                await self.clean_all()

    def stop(self) -> None:
        """Stop; a swap of files that was decided is still finished."""
        self._working.cancel()

    async def clean_all(self) -> None:
        """Compact all dirty logs. A log whose round fails is skipped."""
        failed: set[tuple[bytes, int]] = set()
        while (found := self._dirtiest(failed)) is not None:
            if not await self._clean(*found):
                failed.add(found[0].key)

    def _dirtiest(
        self, passed_over: Collection[tuple[bytes, int]]
    ) -> tuple[Partition, CompactionConfig] | None:
        now_ms = self._deletion_ms()
        ratio, dirtiest = 0.0, None
        if now_ms is None:
            return None
        for partition in self._partitions():
            config = None if partition.key in passed_over else self._config_of(partition)
            if config is not None and partition.log.status is not LogStatus.OFFLINE:
                urgency = LogToClean(partition.log, config, now_ms=now_ms).urgency
                if urgency > ratio:
                    ratio, dirtiest = urgency, (partition, config)
        if not passed_over:
            self._update(dirty_ratio=ratio)
        return dirtiest

    async def _clean(self, partition: Partition, config: CompactionConfig) -> bool:
        """Return whether the round was finished."""
        now_ms = self._deletion_ms()
        if now_ms is None:
            return False
        try:
            cleaning = CleanerRun(
                partition.log,
                SegmentHeader(partition.topic_id, partition.number, 0),
                self._disk,
                config=config,
                memory_bytes=self._limits.memory_bytes,
                now_ms=now_ms,
            )
        except OSError as error:
            self._disk_failed(partition, error)
            return False
        return await self._finish(partition, cleaning)

    async def _finish(self, partition: Partition, cleaning: CleanerRun) -> bool:
        log = partition.log
        try:
            if not await self._run_to_end(partition, cleaning):
                return False
        except RewriteFailedError as error:
            self._failed(partition, str(error))
            gap = cleaning.gap
            if gap is not None and cleaning.is_current and gap.end_offset > log.log_start_offset:
                partition.damage_found(corrupt(gap.offset, gap.end_offset))
                # The checkpoint passes the damage on to the next start.
                self._group_commit.request(partition)
            return False
        except KeyUnavailableError as error:
            self._failed(partition, str(error))
            return False
        except CorruptRecordError as error:  # A broken seal.
            self._failed(partition, str(error))
            if cleaning.is_current:
                partition.damage_found(error)
                self._group_commit.request(partition)
            return False
        except OSError as error:
            if cleaning.is_current:
                self._disk_failed(partition, error)
            else:
                self._failed(partition, str(error))
            return False
        finally:
            cleaning.abandon()
        self._update(
            rounds_ended=self.progress.rounds_ended + 1,
            read_bytes=self.progress.read_bytes + cleaning.read_bytes,
            written_bytes=self.progress.written_bytes + cleaning.written_bytes,
        )
        self._group_commit.request(partition)
        partition.probe(
            "log_compacted",
            clean_offset=cleaning.end_offset,
            read_bytes=cleaning.read_bytes,
            written_bytes=cleaning.written_bytes,
        )
        return True

    async def _run_to_end(self, partition: Partition, cleaning: CleanerRun) -> bool:
        """Return whether the round was finished, and not ended by a change of the log."""
        per_step = self._limits.bytes_per_s // _STEPS_PER_S
        step_bytes = min(max(per_step, _STEP_BYTES_MIN), _STEP_BYTES_MAX)
        while not cleaning.is_done:
            done = await self._env.run_in_thread(lambda: cleaning.run(step_bytes))
            if cleaning.ready is not None and not await self._swap(partition, cleaning):
                return False
            await trio.sleep(done / self._limits.bytes_per_s)
            if not cleaning.is_current or self._config_of(partition) is None:
                return False
        cleaning.end()
        return True

    async def _swap(self, partition: Partition, cleaning: CleanerRun) -> bool:
        async with self._group_commit.swapping(partition):
            swap = cleaning.begin_swap()
            if swap is None:
                return False
            is_decided = False
            try:
                await self._env.run_in_thread(swap.prepare)
                is_decided = True
            finally:
                if not is_decided:
                    swap.cancel()
            if not cleaning.commit(swap):
                return False
            try:
                with trio.CancelScope(shield=True):
                    await self._env.run_in_thread(swap.finish)
            except OSError as error:
                # Which files would survive a power cut is unknown.
                reason = f"replacing segments failed: {error}"
                partition.log.fail(reason)
                partition.note_status(reason)
                return False
            cleaning.end_swap(swap)
        return True

    def _disk_failed(self, partition: Partition, error: OSError) -> None:
        self._failed(partition, str(error))
        if error.errno not in PASSING_ERRNOS:
            partition.reading_failed(error)

    def _failed(self, partition: Partition, reason: str) -> None:
        self._update(last_error=reason)
        partition.probe(
            "compaction_failed",
            severity="warning",
            reason=reason,
        )

    def _update(self, **changes: float | str) -> None:
        self.progress = msgspec.structs.replace(self.progress, **changes)
