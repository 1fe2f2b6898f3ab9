"""Walk over all replicas of this broker, for metrics of states, sizes and lags.

Shell: checkpoints. A broker with very many replicas walks less often, so that the walk stays below
a hundredth of a core.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, final

import trio

from tidelog.broker.metrics.catalog import (
    DISK_FULL_LOGS,
    LOG_BYTES,
    OTHER,
    PARTITIONS,
    REPLICA_LAG_RECORDS,
    STAGED_BYTES,
)
from tidelog.broker.partitions.partition import Partition
from tidelog.isr.leader import PartitionLeader
from tidelog.logstore.disk.availability import LogStatus
from tidelog.wire.metrics.metric import Family, family, single

_AT_ONCE: Final = 200
"""Replicas that are read before other tasks run: half a millisecond."""
_PER_S: Final = 2_000
"""Replicas for each second of the time until the next walk."""
_STATES: Final = (
    *("leader", "follower", "under_replicated", "at_min_isr", "under_min_isr"),
    *("offline", "damaged", "stalled"),
)


@final
@dataclass(slots=True)
class ReplicaTotals:
    """What one walk found."""

    states: Counter[str] = field(default_factory=Counter[str])
    full_logs: int = 0
    staged_bytes: int = 0
    bytes_of: Counter[str] = field(default_factory=Counter[str])
    """Bytes of the replicas of each topic."""
    filled: set[str] = field(default_factory=set[str])
    """Topics with records."""
    lag_of: dict[str, int] = field(default_factory=dict[str, int])
    """Records that the slowest follower of each topic has not fetched."""
    journals: list[Partition] = field(default_factory=list[Partition])
    """Journals of queues that this broker leads."""
    written: list[Partition] = field(default_factory=list[Partition])
    """Partitions of topics whose records this broker got from clients."""
    count: int = 0


@final
class ReplicaWalk:
    """Totals of all replicas, not older than they are many."""

    def __init__(
        self, replicas: Callable[[], list[Partition]], *, has_series: Callable[[str, bool], bool]
    ) -> None:
        """Read `replicas`; topics that get no series of their own are one together.

        `has_series` is called with the name of a topic, and whether a replica of it has records.
        """
        self._replicas = replicas
        self._has_series = has_series
        self._walked_at = float("-inf")
        self.totals = ReplicaTotals()

    async def refresh(self) -> None:
        """Walk, unless the last walk was not long ago for so many replicas."""
        now = trio.current_time()
        if now - self._walked_at < self.totals.count / _PER_S:
            return
        totals = ReplicaTotals()
        for partition in self._replicas():
            totals.count += 1
            if totals.count % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            self._add(totals, partition)
        self.totals, self._walked_at = totals, now

    def families(self) -> list[Family]:
        """Return the metrics of the last walk."""
        totals = self.totals
        return [
            family(PARTITIONS, [((state,), totals.states[state]) for state in _STATES]),
            single(DISK_FULL_LOGS, totals.full_logs),
            single(STAGED_BYTES, totals.staged_bytes),
            family(LOG_BYTES, [((name,), size) for name, size in totals.bytes_of.items()]),
            family(REPLICA_LAG_RECORDS, [((name,), lag) for name, lag in totals.lag_of.items()]),
        ]

    def _add(self, totals: ReplicaTotals, partition: Partition) -> None:
        log, leader, states = partition.log, partition.leader, totals.states
        status = log.status
        states["offline"] += status is LogStatus.OFFLINE
        states["damaged"] += status is LogStatus.DAMAGED
        states["stalled"] += partition.is_stalled
        totals.full_logs += status is LogStatus.READ_ONLY
        name = OTHER
        if partition.is_staging:
            totals.staged_bytes += log.size_bytes
        elif not partition.queue_name:
            name, has_records = partition.topic, log.log_end_offset > log.log_start_offset
            if has_records:
                totals.filled.add(name)
            if not self._has_series(name, has_records):
                name = OTHER
            totals.bytes_of[name] += log.size_bytes
            if partition.traffic.received_records:
                totals.written.append(partition)
        if leader is None:
            states["follower"] += 1
            return
        states["leader"] += 1
        if partition.queue_name:
            totals.journals.append(partition)
        replicas = leader.replicas
        in_sync = len(replicas.in_sync_replicas)
        factor = len(replicas.assigned_replicas)
        states["under_replicated"] += in_sync < factor
        states["under_min_isr"] += in_sync < replicas.min_insync_replicas
        states["at_min_isr"] += factor > in_sync == replicas.min_insync_replicas
        if factor > 1 and not partition.is_staging and not partition.queue_name:
            lag = replica_lag(leader, log.log_end_offset)
            totals.lag_of[name] = max(totals.lag_of.get(name, 0), lag)


def replica_lag(leader: PartitionLeader, log_end_offset: int) -> int:
    """Return the records that the slowest follower has not fetched, as far as it is known."""
    ends = map(leader.follower_end_offset, leader.replicas.assigned_replicas)
    return log_end_offset - min((end for end in ends if end is not None), default=log_end_offset)
