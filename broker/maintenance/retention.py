"""Retention: deletes the oldest segments of logs, by each topic's settings and by total size.

Shell without tasks: callers await the removal of files.
"""

from collections.abc import Callable
from typing import final

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.logstore.retention.retention import surplus_counts
from tidelog.logstore.segments.segment_deletion import SegmentDeletion
from tidelog.wire.env.env import Env


@final
class Retention:
    """Deletes segments of logs."""

    def __init__(
        self,
        env: Env,
        config: Callable[[], BrokerConfig],
        partitions: ReplicaManager,
        *,
        group_commit: GroupCommit,
        deletion_ms: Callable[[], int | None] | None = None,
    ) -> None:
        """Apply retention to `partitions`.

        Args:
            env: Clock and threads.
            config: Returns the settings as they are now.
            partitions: All replicas of this broker.
            group_commit: Orders deletion and syncs.
            deletion_ms: Returns the time that decides about deletion by time, `None` while nothing
                is deleted by time; the clock of `env` by default.
        """
        self.deletion_ms = env.clock.now_ms if deletion_ms is None else deletion_ms
        self.partitions = partitions
        self._env = env
        self._config = config
        self._group_commit = group_commit
        self._wanted: dict[tuple[bytes, int], int] = {}
        """Number of segments to delete of each partition, because all take too much together."""

    def begin_round(self) -> None:
        """Determine the segments to delete for the limit on total size."""
        self._wanted.clear()
        max_bytes = self._config().log_retention_disk_bytes
        if not max_bytes:
            return
        self.partitions.open_all_soon()  # Any of them may have the oldest records.
        now_ms = self._env.clock.now_ms()
        counted = [
            partition
            for partition in self.partitions.all()
            if not partition.is_held and _counts(partition)
        ]
        logs = [partition.log.summary(now_ms=now_ms) for partition in counted]
        counts = surplus_counts(logs, max_bytes=max_bytes)
        self._wanted = {
            each.key: count for each, count in zip(counted, counts, strict=True) if count
        }

    async def apply(self, partition: Partition) -> None:
        """Delete the segments of a log that retention no longer keeps."""
        log, start_before = partition.log, partition.log.log_start_offset
        removal = log.apply_retention(
            high_watermark=partition.high_watermark,
            now_ms=self.deletion_ms(),
            wanted=self._wanted.get(partition.key, 0),
        )
        if removal:
            await self._remove(partition, removal, log.log_start_offset - start_before)

    async def _remove(
        self, partition: Partition, removal: SegmentDeletion, record_count: int
    ) -> None:
        log = partition.log
        try:
            async with self._group_commit.removing(partition):
                await self._env.run_in_thread(removal.run)
        except OSError as error:
            # The log no longer reads them, and the next start removes them.
            partition.probe("files_left_over", severity="warning", reason=str(error))
            return
        partition.probe(
            "segments_deleted",
            count=len(removal),
            record_count=record_count,
            log_start_offset=log.log_start_offset,
        )


def _counts(partition: Partition) -> bool:
    """Return whether a log counts towards `log_retention_disk_bytes`."""
    return not (partition.config.is_kept or partition.queue_name or partition.is_staging)
