"""Roles of this broker's replicas: leader or follower, as in the metadata.

Shell: owns the fetchers, one for each broker that leads a partition with a replica here.
"""

from typing import final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.context import ReplicationContext, now_ms
from tidelog.broker.replication.failed_replicas import FailedReplicas
from tidelog.broker.replication.fetch_server import FetchServer
from tidelog.broker.replication.fetcher import ReplicaFetcher
from tidelog.broker.replication.isr_updater import IsrUpdater
from tidelog.broker.replication.log_end_reports import LogEndReports
from tidelog.broker.replication.loss_reports import LossReports
from tidelog.broker.replication.replica_repair import ReplicaRepair
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.coordinator.metadata import records
from tidelog.coordinator.metadata.broker_delta import BrokerDelta, Key
from tidelog.coordinator.metadata.cluster_config import min_insync_replicas
from tidelog.isr.fetch_session import Key as FollowedKey
from tidelog.isr.followers import Followers
from tidelog.isr.replica_set import BrokerView, ReplicaSet
from tidelog.wire.errors import ShuttingDownError


@final
class RoleTransitions:
    """Makes replicas leaders and followers.

    Invariant: at most one fetcher follows a partition, and none while it is led here.
    """

    def __init__(self, context: ReplicationContext, purgatory: Purgatory) -> None:
        """Start without replicas; `run` must run in a task."""
        self._context = context
        self._view = BrokerView(context.node_id, context.status_of, context.replica_lag_time_max_ms)
        self._config = context.state.config
        self._in_sync = IsrUpdater(context)
        self.server = FetchServer(context, self._in_sync, purgatory)
        self.failed_replicas = FailedReplicas(context)
        self._log_end_reports = LogEndReports(context)
        self._loss_reports = LossReports(context)
        self._replica_repair = ReplicaRepair(context, self.leave, self._released)
        self._has_stopped = False
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._followed_by: dict[FollowedKey, ReplicaFetcher] = {}

    @property
    def node_id(self) -> int:
        """Node id of this broker."""
        return self._context.node_id

    async def run(self) -> None:
        """Serve followers, keep replicas in sync and whole, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.failed_replicas.run)
            nursery.start_soon(self._log_end_reports.run)
            nursery.start_soon(self._loss_reports.run)
            nursery.start_soon(self._replica_repair.run)
            nursery.start_soon(self.server.run)
            nursery.start_soon(self._in_sync.run)

    def take_role(self, partition: Partition) -> None:
        """Lead or follow a partition, as the metadata says now."""
        if partition.status_changed is None:
            partition.status_changed = self._status_changed
            self._status_changed(partition)
        if partition.is_held or self._has_stopped:
            return  # The release of the log calls this again.
        known = self._context.state.partition(*partition.key)
        if known is None or self._context.node_id not in known.replicas:
            self.leave(partition.key)
        elif known.leader == self._context.node_id:
            self._lead(partition, known)
        else:
            self._follow(partition, known)

    def stop(self) -> None:
        """Stop leading and following: from now on no log here gets appends."""
        self._has_stopped = True
        for partition in self._context.partitions.all():
            self.leave(partition.key)
            partition.resign(ShuttingDownError("this broker is shutting down"))

    def heard(self, delta: BrokerDelta) -> None:
        """Process changes of brokers and of the dynamic config."""
        partitions = self._context.partitions
        if delta.has_changed_brokers:
            for partition in partitions.all():
                # A replica may now be able to join.
                if partition.leader is not None and not partition.leader.is_all_in_sync:
                    self._in_sync.changed(partition)
        config = self._context.state.config
        if config != self._config:
            self._config = config
            for partition in partitions.all():
                self.take_role(partition)

    def leave(self, key: Key) -> None:
        """Follow a partition no more."""
        fetcher = self._followed_by.pop(key, None)
        if fetcher is not None:
            fetcher.unfollow(key)

    def _lead(self, partition: Partition, known: records.PartitionRegistration) -> None:
        self.leave(partition.key)
        replicas = self._replica_set(partition, known)
        leader = partition.leader
        if leader is not None and leader.leader_epoch == known.leader_epoch:
            if replicas.in_sync_replicas != leader.replicas.in_sync_replicas:
                self._tell_of_in_sync_replicas(partition, replicas)
            partition.replicas_changed(replicas, now_ms=now_ms())
        else:
            followers = Followers(
                replicas,
                self._view,
                epoch_start_offset=partition.log.log_end_offset,
                now_ms=now_ms(),
            )
            partition.lead(known.leader_epoch, followers)
            for listener in self._context.partitions.listeners:
                listener(partition)
        if len(replicas.assigned_replicas) > 1:
            partition.watchers[self._in_sync] = None
            self._in_sync.changed(partition)
        else:
            partition.watchers.pop(self._in_sync, None)

    def _follow(self, partition: Partition, known: records.PartitionRegistration) -> None:
        partition.watchers.pop(self._in_sync, None)
        follower = partition.follower
        is_same = (
            follower is not None
            and follower.leader_epoch == known.leader_epoch
            and follower.leader_id == known.leader
        )
        if follower is not None:
            # An administrator may accept a loss at any time.
            follower.data_loss_epoch = known.data_loss_epoch
        if not is_same:
            partition.follow(
                known.leader, known.leader_epoch, data_loss_epoch=known.data_loss_epoch
            )
        if known.leader is None:
            self._log_end_reports.look_at(partition)
        if is_same and (partition.key in self._followed_by or known.leader is None):
            return
        self.leave(partition.key)
        if known.leader is not None:
            fetcher = self._fetchers.get(known.leader)
            if fetcher is None:
                fetcher = ReplicaFetcher(
                    self._context, known.leader, self._released, losses=self._loss_reports
                )
                self._fetchers[known.leader] = fetcher
                self._context.nursery.start_soon(fetcher.run)
            self._followed_by[partition.key] = fetcher
            fetcher.follow(partition, known.leader_epoch)

    def _released(self, partition: Partition) -> None:
        """Take a released log's role again, unless it is closed: another may have replaced it."""
        if self._context.is_open(partition):
            self._followed_by.pop(partition.key, None)
            self.take_role(partition)

    def _status_changed(self, partition: Partition) -> None:
        self.failed_replicas.look_at(partition)
        self._replica_repair.look_at(partition)

    def _replica_set(
        self, partition: Partition, known: records.PartitionRegistration
    ) -> ReplicaSet:
        state = self._context.state
        topic = state.catalog.topic_by_id(partition.topic_id)
        assert topic is not None, "a topic with partitions is in the catalog"
        return ReplicaSet(
            known.replicas,
            known.in_sync_replicas,
            known.partition_epoch,
            min_insync_replicas(topic, state.config, known.replication_factor),
        )

    def _tell_of_in_sync_replicas(self, partition: Partition, replicas: ReplicaSet) -> None:
        partition.probe(
            "in_sync_replicas_changed",
            severity="debug",  # The controller reports many partitions in one line.
            in_sync_replicas=list(replicas.in_sync_replicas),
            assigned_replicas=list(replicas.assigned_replicas),
        )
