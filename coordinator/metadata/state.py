"""The metadata of a cluster: the state that its records add up to.

Pure: no clock, no I/O. `apply` is the only change; everything else reads. An index beside the
records keeps the cost of a command proportional to its change, not to the size of the cluster.

Compact: a partition is one small object, and equal lists of replicas are one list.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import final

import msgspec

from tidelog.coordinator.metadata.catalog import (
    Catalog,
    Topic,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from tidelog.coordinator.metadata.catalog import Record as CatalogRecord
from tidelog.coordinator.metadata.cluster_config import ClusterConfig, cluster_config
from tidelog.coordinator.metadata.cluster_events import ClusterEvents
from tidelog.coordinator.metadata.features import record_level
from tidelog.coordinator.metadata.records import (
    BrokerChanged,
    BrokerDrained,
    BrokerRegistered,
    BrokerRegistration,
    BrokerUnregistered,
    ClusterConfigSet,
    ClusterEvent,
    ClusterSnapshot,
    DataLossAccepted,
    EqualPartitionsChanged,
    EventsAcknowledged,
    EventsSnapshot,
    FeatureLevelSet,
    PartitionChanges,
    PartitionRegistration,
    PartitionsAdded,
    PartitionsChanged,
    Record,
    TopicSnapshot,
    UnverifiedReplica,
)
from tidelog.coordinator.metadata.replica_index import NO_PARTITION, ReplicaIndex
from tidelog.coordinator.metadata.topic_config import topic_config
from tidelog.coordinator.metadata.transactions import TransactionRecord, Transactions
from tidelog.coordinator.security.records import SecurityRecord
from tidelog.coordinator.security.state import SecurityState
from tidelog.isr.durability import Durability

DATA_LOSSES_KEPT = 100
_POOLED_MAX = 1_000
"""Number of partitions, or of lists, above which the pool is emptied before the next record."""
_KNOWN_MAX = 64
"""Number of objects of one record that are known by their ids."""
_EventRecord = DataLossAccepted | ClusterEvent | EventsAcknowledged
_KeptRecord = CatalogRecord | SecurityRecord | _EventRecord
_OtherRecord = (
    _KeptRecord
    | BrokerRegistered
    | BrokerChanged
    | BrokerUnregistered
    | BrokerDrained
    | PartitionsAdded
    | PartitionsChanged
    | EqualPartitionsChanged
    | ClusterConfigSet
    | FeatureLevelSet
)
"""All but those of transactions."""


@final
class ClusterState:
    """The current brokers, topics, partitions and configuration.

    Invariant: the index equals one computed from the partitions.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.catalog = Catalog()
        """Topics, their settings, producer ids; read-only."""
        self.transactions = Transactions()
        """Transactions; read-only."""
        self.events = ClusterEvents(EventsSnapshot())
        """Events that need an administrator; read-only."""
        self.security = SecurityState()
        """Users, grants, quotas and keys; read-only."""
        self._brokers: dict[int, BrokerRegistration] = {}
        self._drained: dict[int, None] = {}
        self._partitions: dict[bytes, list[PartitionRegistration]] = {}
        self._overrides: dict[str, str] = {}
        self._config = ClusterConfig()
        self._next_broker_epoch = 1
        self._data_losses: list[DataLossAccepted] = []
        self._fsync_since: dict[bytes, int] = {}
        self._index = ReplicaIndex()
        self._feature_level: int | None = None
        self._used_level = 0
        self._pool = _Pool()
        """Shared with copies: most records make partitions equal to those of records before."""

    @classmethod
    def from_snapshot(cls, snapshot: ClusterSnapshot) -> "ClusterState":
        """Restore a state from its snapshot.

        Raises:
            InvalidConfigError: A newer version recorded a setting that this one does not know.
        """
        state = cls()
        state.catalog = Catalog.from_snapshot(snapshot.catalog)
        state.transactions = Transactions(snapshot.transactions)
        state.events = ClusterEvents(snapshot.events)
        state.security = SecurityState(snapshot.security)
        state._brokers = {broker.node_id: broker for broker in snapshot.brokers}
        state._drained = dict.fromkeys(snapshot.drained_node_ids)
        state._overrides = snapshot.overrides
        state._config = cluster_config(snapshot.overrides)
        state._next_broker_epoch = snapshot.next_broker_epoch
        state._data_losses = list(snapshot.data_losses)
        state._feature_level = snapshot.feature_level
        state._used_level = snapshot.used_level
        pool = _Pool()
        for topic in snapshot.topics:
            if topic.fsync_since_broker_epoch:
                state._fsync_since[topic.topic_id] = topic.fsync_since_broker_epoch
            state._add(topic.topic_id, topic.partitions, pool)
        return state

    def copy(self) -> "ClusterState":
        """Return an independent state that shares what never changes in place.

        It costs a fraction of a snapshot, and no second object for each topic and partition.
        """
        state = ClusterState()
        state.catalog = self.catalog.copy()
        state.transactions = Transactions(self.transactions.snapshot())
        state.events = ClusterEvents(self.events.snapshot())
        state.security = SecurityState(self.security.snapshot())
        state._brokers = self._brokers.copy()
        state._drained = self._drained.copy()
        state._partitions = {topic_id: each.copy() for topic_id, each in self._partitions.items()}
        state._overrides = self._overrides
        state._config = self._config
        state._next_broker_epoch = self._next_broker_epoch
        state._data_losses = self._data_losses
        state._fsync_since = self._fsync_since.copy()
        state._index = self._index.copy()
        state._feature_level = self._feature_level
        state._used_level = self._used_level
        state._pool = self._pool
        return state

    def snapshot(self) -> ClusterSnapshot:
        """Return the whole state; `from_snapshot` is the inverse."""
        topics = [
            TopicSnapshot(topic_id, list(partitions), self._fsync_since.get(topic_id, 0))
            for topic_id, partitions in self._partitions.items()
        ]
        return ClusterSnapshot(
            self.catalog.snapshot(),
            list(self._brokers.values()),
            topics,
            self._overrides,
            self._next_broker_epoch,
            list(self._data_losses),
            list(self._drained),
            self.transactions.snapshot(),
            self.events.snapshot(),
            self._feature_level,
            self._used_level,
            self.security.snapshot(),
        )

    @property
    def brokers(self) -> Mapping[int, BrokerRegistration]:
        """All registered brokers, by node id."""
        return MappingProxyType(self._brokers)

    @property
    def drained_node_ids(self) -> Collection[int]:
        """Brokers that get no replicas."""
        return self._drained.keys()

    @property
    def undrained_brokers(self) -> list[BrokerRegistration]:
        """The brokers that new replicas may be placed on, alive or not."""
        return [each for each in self._brokers.values() if each.node_id not in self._drained]

    @property
    def config(self) -> ClusterConfig:
        """The dynamic config in force."""
        return self._config

    @property
    def overrides(self) -> Mapping[str, str]:
        """The dynamic config that differs from the defaults, as text."""
        return MappingProxyType(self._overrides)

    @property
    def next_broker_epoch(self) -> int:
        """The broker epoch of the next registration."""
        return self._next_broker_epoch

    @property
    def feature_level(self) -> int:
        """The feature level in force; see `coordinator.metadata.features`."""
        return self._feature_level or 0

    @property
    def is_first_level_open(self) -> bool:
        """Whether the cluster is new, and all its processes so far know feature levels."""
        return self._feature_level is None

    @property
    def used_level(self) -> int:
        """The highest feature level of all records so far."""
        return self._used_level

    def use_level(self, level: int) -> None:
        """Note the feature level of records of groups, which are in the same log."""
        self._used_level = max(self._used_level, level)

    @property
    def data_losses(self) -> Sequence[DataLossAccepted]:
        """The last accepted data losses, oldest first."""
        return self._data_losses

    @property
    def index(self) -> ReplicaIndex:
        """Loads by broker, computed from the partitions; read-only."""
        return self._index

    def partitions(self, topic_id: bytes) -> Sequence[PartitionRegistration]:
        """Return the partitions of a topic in order; none for an unknown topic."""
        return self._partitions.get(topic_id, ())

    def partition(self, topic_id: bytes, number: int) -> PartitionRegistration | None:
        """Return one partition."""
        partitions = self._partitions.get(topic_id, ())
        return partitions[number] if 0 <= number < len(partitions) else None

    def source_partition(self, topic: Topic, number: int) -> PartitionRegistration | None:
        """Return the partition with which an internal one is colocated; `None` for other topics."""
        return self._partitions[topic.source_id][number] if topic.is_internal else None

    def may_lose_committed(self, topic: Topic, previous: BrokerRegistration) -> bool:
        """Return whether an unclean stop of `previous` may have lost committed records.

        Under `fsync` nothing is committed before it is on disk. But records from before a change of
        `durability` to `fsync` were in memory, and perhaps still are, in processes of that time.
        """
        if topic.config.durability is not Durability.FSYNC:
            return True
        return previous.broker_epoch < self._fsync_since.get(topic.topic_id, 0)

    def apply(self, record: Record) -> None:
        """Apply a record; the only way in which the state changes.

        Raises:
            InvalidConfigError: A newer version recorded a setting that this one does not know.
        """
        self._used_level = max(self._used_level, record_level(record))
        if isinstance(record, TransactionRecord):
            self.transactions.apply(record)
        else:
            self._apply_other(record)

    def _apply_other(self, record: _OtherRecord) -> None:
        match record:
            case BrokerRegistered():
                self._register(record.broker)
            case FeatureLevelSet():
                self._feature_level = record.level
            case BrokerChanged():
                self._brokers[record.node_id] = with_changed(self._brokers[record.node_id], record)
            case BrokerUnregistered():
                del self._brokers[record.node_id]
                self._drained.pop(record.node_id, None)
            case BrokerDrained():
                self._drained.pop(record.node_id, None)
                if record.is_drained:
                    self._drained[record.node_id] = None
            case PartitionsAdded():
                self._add(record.topic_id, record.partitions, self._pool_for_record())
            case PartitionsChanged() | EqualPartitionsChanged():
                self._change(record)
            case ClusterConfigSet():
                self._config = cluster_config(record.overrides)
                self._overrides = record.overrides
            case _:
                self._apply_to_what_is_kept(record)

    def _register(self, broker: BrokerRegistration) -> None:
        self._brokers[broker.node_id] = broker
        self._next_broker_epoch = broker.broker_epoch + 1
        if self._feature_level is None and broker.supported_levels is None:
            self._feature_level = 0

    def _apply_to_what_is_kept(self, record: _KeptRecord) -> None:
        if isinstance(record, DataLossAccepted):
            self._data_losses = [*self._data_losses, record][-DATA_LOSSES_KEPT:]
        elif isinstance(record, ClusterEvent | EventsAcknowledged):
            self.events.apply(record)
        elif isinstance(record, SecurityRecord):
            self.security.apply(record)
        else:
            self._apply_to_topics(record)

    def _apply_to_topics(self, record: CatalogRecord) -> None:
        match record:
            case TopicCreated():
                self._partitions[record.topic_id] = []
            case TopicAltered():
                self._note_durability(record)
            case TopicDeleted():
                partitions = self._partitions.pop(record.topic_id)
                self.transactions.topic_deleted(record.topic_id, len(partitions))
                self.security.topic_deleted(record.topic_id)
                for number, partition in enumerate(partitions):
                    self._index.moved(record.topic_id, number, partition, after=NO_PARTITION)
                self._fsync_since.pop(record.topic_id, None)
            case _:
                pass
        self.catalog.apply(record)

    def _note_durability(self, record: TopicAltered) -> None:
        before = self.catalog.topic_by_id(record.topic_id)
        assert before is not None
        after = topic_config(record.overrides).durability
        if before.config.durability is not Durability.FSYNC and after is Durability.FSYNC:
            self._fsync_since[record.topic_id] = self._next_broker_epoch

    def _pool_for_record(self) -> "_Pool":
        """Return the pool, without the ids of objects that may be gone."""
        pool = self._pool
        pool.by_id.clear()
        if max(len(pool.partitions), len(pool.nodes), len(pool.unverified)) > _POOLED_MAX:
            pool.nodes.clear()
            pool.unverified.clear()
            pool.partitions.clear()
        return pool

    def _add(self, topic_id: bytes, partitions: list[PartitionRegistration], pool: "_Pool") -> None:
        there = self._partitions.setdefault(topic_id, [])
        for partition in partitions:
            compact = _compact(partition, pool)
            self._index.moved(topic_id, len(there), NO_PARTITION, after=compact)
            there.append(compact)

    def _change(self, record: PartitionChanges) -> None:
        pool = self._pool_for_record()
        for topic_id, number, partition in record.changes():
            partitions = self._partitions[topic_id]
            before = partitions[number]
            pool.nodes.setdefault(before.replicas, before.replicas)
            after = _compact(partition, pool)
            assert after.partition_epoch == before.partition_epoch + 1, "a change is missing"
            self._index.moved(topic_id, number, before, after=after)
            partitions[number] = after


def with_changed(broker: BrokerRegistration, record: BrokerChanged) -> BrokerRegistration:
    """Return the registration of a broker after a change of its state."""
    epoch, levels = record.directory_epoch, record.supported_levels
    return msgspec.structs.replace(
        broker,
        is_fenced=record.is_fenced,
        is_shutting_down=record.is_shutting_down,
        directory_epoch=broker.directory_epoch if epoch is None else epoch,
        supported_levels=broker.supported_levels if levels is None else levels,
    )


class _Pool(msgspec.Struct):
    """Partitions and lists of replicas, so that equal ones are one object."""

    nodes: dict[tuple[int, ...], tuple[int, ...]] = {}
    unverified: dict[tuple[UnverifiedReplica, ...], tuple[UnverifiedReplica, ...]] = {}
    partitions: dict[PartitionRegistration, PartitionRegistration] = {}
    by_id: dict[int, PartitionRegistration] = {}
    """Results by the id of the argument, which its record keeps: very many partitions of a command
    are few objects. Those of a decoded record are not."""


def _compact(partition: PartitionRegistration, pool: _Pool) -> PartitionRegistration:
    """Return the partition, or an equal one; equal lists of replicas are shared objects."""
    known = pool.by_id.get(id(partition))
    if known is None:
        known = pool.partitions.get(partition)
        if known is None:
            known = pool.partitions[partition] = _with_shared_lists(partition, pool)
        if len(pool.by_id) < _KNOWN_MAX:
            pool.by_id[id(partition)] = known
    return known


def _with_shared_lists(partition: PartitionRegistration, pool: _Pool) -> PartitionRegistration:
    def shared(nodes: tuple[int, ...]) -> tuple[int, ...]:
        return pool.nodes.setdefault(nodes, nodes)

    unverified = partition.unverified_replicas
    return msgspec.structs.replace(
        partition,
        replicas=shared(partition.replicas),
        in_sync_replicas=shared(partition.in_sync_replicas),
        eligible_leader_replicas=shared(partition.eligible_leader_replicas),
        offline_replicas=shared(partition.offline_replicas),
        unverified_replicas=pool.unverified.setdefault(unverified, unverified),
    )
