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
from tidelog.broker.partitions.idle_replicas import IdleReplica
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.isr.leader import PartitionLeader
from tidelog.logstore.disk.availability import LogStatus
from tidelog.wire.metrics.metric import Family, family, single

_AT_ONCE: Final = 200
"""Replicas that are read before other tasks run: half a millisecond."""
_OPENED_MAX: Final = 100
"""Closed journals that one walk opens."""
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
    uncounted: int = 0
    """Closed journals of queues whose messages are not known."""


@final
class ReplicaWalk:
    """Totals of all replicas, not older than they are many."""

    def __init__(
        self,
        replicas: ReplicaManager,
        *,
        topic_of: Callable[[bytes], Topic | None],
        has_series: Callable[[str, bool], bool],
    ) -> None:
        """Read `replicas`; topics that get no series of their own are one together.

        `topic_of` returns the topic of an id. `has_series` is called with the name of a topic, and
        whether a replica of it has records.
        """
        self._topic_of = topic_of
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
        await self._open_uncounted()
        for number, (key, idle) in enumerate(list(self._replicas.idle.items())):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            topic = self._topic_of(key[0])
            if topic is not None:
                self._add_idle(totals, topic, idle, is_led=self._replicas.is_led(*key))
        for partition in self._replicas.all():
            totals.count += 1
            if totals.count % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            self._add(totals, partition)
        self.totals, self._walked_at = totals, now

    async def _open_uncounted(self) -> None:
        """Open some closed journals of queues with messages, so that they are counted."""
        uncounted = [
            key
            for key, idle in self._replicas.idle.items()
            if not idle.is_drained
            and (topic := self._topic_of(key[0])) is not None
            and topic.queue is not None
        ]
        for key in uncounted[:_OPENED_MAX]:
            self._replicas.replica(*key)
            await trio.lowlevel.checkpoint()

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

    def _add_idle(
        self, totals: ReplicaTotals, topic: Topic, idle: IdleReplica, *, is_led: bool
    ) -> None:
        totals.count += 1
        totals.states["leader"] += is_led
        totals.states["follower"] += not is_led
        if topic.is_internal:
            totals.uncounted += topic.queue is not None and not idle.is_drained
            return
        has_records = idle.log_end_offset > idle.log_start_offset
        self._add_bytes(totals, topic.name, idle.size_bytes, has_records=has_records)

    def _add_bytes(
        self, totals: ReplicaTotals, name: str, size_bytes: int, *, has_records: bool
    ) -> str:
        """Add the bytes of a replica; return the name of the series that has them."""
        if has_records:
            totals.filled.add(name)
        if not self._has_series(name, has_records):
            name = OTHER
        totals.bytes_of[name] += size_bytes
        return name

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
            has_records = log.log_end_offset > log.log_start_offset
            name = self._add_bytes(totals, partition.topic, log.size_bytes, has_records=has_records)
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
