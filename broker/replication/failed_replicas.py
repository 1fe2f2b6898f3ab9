"""Failed replicas of this broker, and their removal from the ISR.

Shell around `coordinator.metadata.replica_removal`: owns the task that watches failed replicas. It
acts on the present state, not on events. While a replica is not whole and is in the ISR or
eligible, the task submits its removal, with one command at a time for all of them.
"""

import heapq
from typing import Final, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.context import ReplicationContext
from tidelog.coordinator.metadata.broker_delta import Key
from tidelog.coordinator.metadata.commands import FailedReplica, RemoveFromIsr
from tidelog.coordinator.metadata.replica_removal import should_remove_from_isr
from tidelog.isr.durability import Durability
from tidelog.logstore.log import LogStatus
from tidelog.wire.errors import (
    BrokerError,
    DiskFullError,
    OverloadedError,
)
from tidelog.wire.messages.cluster import (
    DAMAGED_NAMED_MAX,
    DamagedPartition,
    DamagedReplicas,
)

_LOOK_S: Final = 0.25
"""Maximum delay in seconds in detecting that a disk does not answer, or that another replica could
lead."""
_RETRY_S: Final = 0.5
_OTHERS_S: Final = 3.0
"""Time in seconds that a start waits for another eligible replica whose broker is not up yet."""
_LATE_S: Final = 1.0
"""Delay of a check in seconds above which this process was suspended, and not its disk."""
_AT_ONCE_MAX: Final = 1000


@final
class FailedReplicas:
    """The replicas of this broker that are not whole.

    Invariant: every open replica whose log is damaged or offline is among them.
    """

    def __init__(self, context: ReplicationContext) -> None:
        """Start without replicas; `run` must run in a task."""
        self._context = context
        self._failed_replicas: dict[Partition, None] = {}
        self._stalled_at: dict[Partition, float] = {}
        """Time at which a disk was last seen not to answer, for disks that are or were stalled
        lately."""
        self._unopened: dict[Key, bool] = {}
        """Replicas without an open log, and whether they may lack committed records."""
        self._has_news = trio.Event()
        self._removing = trio.Lock()

    def look_at(self, partition: Partition) -> None:
        """Add a replica if it is not whole; a follower reports that to its leader."""
        if not partition.is_whole and partition not in self._failed_replicas:
            self._failed_replicas[partition] = None
            partition.progressed()
            self._has_news.set()

    def damaged(self) -> DamagedReplicas:
        """Return the replicas with known damage that is not repaired."""
        damaged = [each for each in self._failed_replicas if each.log.damage]
        named = heapq.nsmallest(DAMAGED_NAMED_MAX, (each.key for each in damaged))
        partitions = [DamagedPartition(*key) for key in named]
        return DamagedReplicas(self._context.node_id, len(damaged), partitions)

    def not_opened(self, key: Key, error: BrokerError) -> None:
        """Add a replica whose log could not be created or opened for now.

        If only disk space or a file descriptor was missing, its records are not suspect.
        """
        self._unopened[key] = not isinstance(error, DiskFullError | OverloadedError)
        self._has_news.set()

    async def remove_damaged_from_isr(self) -> None:
        """Remove damaged replicas from the ISR; called at the start of a broker.

        Return when the cluster has committed that, or when no other replica can take over.
        """
        deadline = trio.current_time() + _OTHERS_S
        while True:
            if await self._remove_due():
                continue
            if trio.current_time() >= deadline or not self._waits_for_others():
                return
            await trio.sleep(_LOOK_S)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            wanted_at = trio.current_time() + _LOOK_S
            self._has_news = trio.Event()
            with trio.move_on_at(wanted_at):
                await self._has_news.wait()
            if trio.current_time() - wanted_at < _LATE_S:
                self._look_for_stalled()
            self._look()
            await self._remove_due()

    def _look_for_stalled(self) -> None:
        """Find disks that do not answer. A disk that has just answered is not trusted at once."""
        now, lag_max_s = trio.current_time(), self._context.replica_lag_time_max_ms / 1000
        for partition in self._context.group_commit.stalled(lag_max_s):
            # Records that only need to be in memory are still acknowledged.
            if partition.durability is Durability.FSYNC:
                self._stalled_at[partition] = now
        for partition, at in list(self._stalled_at.items()):
            if partition.is_stalled and now - at > lag_max_s:
                del self._stalled_at[partition]
                partition.is_stalled = False
            elif not partition.is_stalled:
                partition.stalled()
                self._tell_stalled(partition)
                self.look_at(partition)

    def _tell_stalled(self, partition: Partition) -> None:
        partition.probe(
            "disk_stalled",
            severity="error",
            longer_than_ms=self._context.replica_lag_time_max_ms,
        )

    def _look(self) -> None:
        for partition in list(self._failed_replicas):
            is_open = self._context.is_open(partition)
            if partition.is_whole or not is_open:
                del self._failed_replicas[partition]
                if is_open:
                    partition.progressed()
        for key in list(self._unopened):
            if self._context.partitions.replica(*key) is not None:
                del self._unopened[key]

    def _due(self) -> list[FailedReplica]:
        """Return the replicas that are in the ISR or eligible, and can be removed."""
        context = self._context
        state = context.state
        due = self._due_of_lost() + self._due_of_unopened()
        for partition in self._failed_replicas:
            known = state.partition(*partition.key)
            replica = FailedReplica(
                *partition.key,
                _may_lack_records(partition),
                is_offline=partition.log.status is LogStatus.OFFLINE,
            )
            if known is not None and should_remove_from_isr(
                known, context.node_id, state.brokers, replica=replica
            ):
                due.append(replica)
        return due[:_AT_ONCE_MAX]

    def _due_of_lost(self) -> list[FailedReplica]:
        """Return replicas that have lost files and are in the ISR or eligible.

        A sole replica with some files left stays: no other replica has more.
        """
        context = self._context
        state, own_id = context.state, context.node_id
        due: list[FailedReplica] = []
        for key, suspect in context.partitions.suspects.items():
            known = state.partition(*key)
            if known is None or (len(known.replicas) == 1 and not suspect.is_empty):
                continue
            replica = FailedReplica(*key, may_lack_records=True, is_lost=True)
            if should_remove_from_isr(known, own_id, state.brokers, replica=replica):
                due.append(replica)
        return due

    def _due_of_unopened(self) -> list[FailedReplica]:
        """Return replicas without an open log that are in the ISR or eligible.

        They can neither lead nor follow.
        """
        context = self._context
        state, own_id = context.state, context.node_id
        due: list[FailedReplica] = []
        for key, may_lack_records in list(self._unopened.items()):
            known = state.partition(*key)
            if known is None or own_id not in known.replicas:
                del self._unopened[key]
                continue
            replica = FailedReplica(*key, may_lack_records)
            if should_remove_from_isr(known, own_id, state.brokers, replica=replica):
                due.append(replica)
        return due

    def _waits_for_others(self) -> bool:
        """Return whether another eligible replica of a damaged partition is not up yet."""
        own_id = self._context.node_id
        for partition in self._failed_replicas:
            known = self._context.state.partition(*partition.key)
            if known is not None and _may_lack_records(partition):
                eligible = known.eligible_leader_replicas
                if own_id in eligible and len(eligible) > 1:
                    return True
        return False

    async def _remove_due(self) -> bool:
        """Remove the replicas that are due; return whether there was one.

        A start and the task may call this at the same time.
        """
        async with self._removing:
            due = self._due()
            if due:
                await self._remove_from_isr(due)
        return bool(due)

    async def _remove_from_isr(self, due: list[FailedReplica]) -> None:
        context = self._context
        if not await context.report(RemoveFromIsr, due, failure="isr_removal_failed"):
            await trio.sleep(_RETRY_S)
            return
        for each in due:
            partition = context.partitions.replica(each.topic_id, each.partition)
            if partition is None:
                topic = context.state.catalog.topic_by_id(each.topic_id)
                context.env.probe(
                    "replica_removed_from_isr",
                    severity="warning",
                    topic="" if topic is None else topic.name,
                    partition=each.partition,
                    status="not opened",
                )
            else:
                partition.probe(
                    "replica_removed_from_isr",
                    severity="warning",
                    status=partition.log.status.value,
                    is_stalled=partition.is_stalled,
                )


def _may_lack_records(partition: Partition) -> bool:
    """Return whether committed records may be damaged, or missing on the disk.

    Records committed under `fsync` were durable before. Only the cluster knows whether that setting
    was in force ever since they were committed.
    """
    return not partition.log.durable_intact
