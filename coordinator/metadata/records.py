"""The records of the metadata log, with the registrations of brokers and partitions.

Pure: declarations. A record is a msgpack array that begins with its tag. A record with another
meaning gets another tag; a field is only ever appended, with a default. The records of
`coordinator.metadata.catalog` are records of a cluster as well.
"""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import msgspec

from tidelog.coordinator.metadata.catalog import CatalogSnapshot
from tidelog.coordinator.metadata.catalog import Record as CatalogRecord
from tidelog.coordinator.metadata.transactions import TransactionRecord, TransactionsSnapshot
from tidelog.coordinator.security.records import SecurityRecord, SecuritySnapshot
from tidelog.wire.messages.features import OWN_LEVELS, FeatureLevel, SupportedLevels
from tidelog.wire.messages.field_types import (
    BrokerEpoch,
    Epoch,
    LogEpoch,
    NodeId,
    Offset,
    PartitionNumber,
    Port,
)


class BrokerRegistration(msgspec.Struct, frozen=True, array_like=True):
    """One broker as of its last registration."""

    node_id: NodeId
    disk_id: str
    """Drawn when the data directory was created: another disk has none of the records."""
    incarnation_id: str
    """Drawn at each start of the process."""
    broker_epoch: BrokerEpoch
    """Rises with each registration in the cluster; distinguishes processes of a broker
    (KIP-903)."""
    host: str
    port: Port
    rack: str
    """The failure domain, such as a machine or a rack; empty for a domain of its own."""
    is_fenced: bool = True
    """The broker was silent or has not caught up yet: it leads nothing and is in no ISR."""
    is_shutting_down: bool = False
    """The broker is about to stop: it gets no leaderships."""
    replaced_incarnation_ids: tuple[str, ...] = ()
    """Incarnations of the last few earlier processes, newest first."""
    directory_epoch: BrokerEpoch | None = None
    """Highest broker epoch that the data directory is known to hold: with a lower one it has older
    data. `None`: no process of this disk has reported one."""
    supported_levels: SupportedLevels | None = None
    """Feature levels of the process; `None` if it has not reported any."""

    @property
    def can_lead(self) -> bool:
        """Whether the broker may get leaderships and join an ISR."""
        return not (self.is_fenced or self.is_shutting_down)


class LogEnd(NamedTuple):
    """The end of a replica's log; see `leader_election.greatest_log_end` for the comparison."""

    leader_epoch: LogEpoch
    """Of the last record, which the log may have deleted; -1 if the log does not know it."""
    log_end_offset: Offset
    is_whole: bool
    """Whether the log has no known damage."""


class UnverifiedReplica(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A replica that may have all committed records, which only a comparison of logs can show.

    Either its process ended uncleanly while the replica was in the ISR or eligible, and its disk
    may have lost records since. Or it left the ISR while enough others stayed in it; their disks
    may lose records later that it still has.
    """

    node_id: NodeId
    log_end: LogEnd | None = None
    """Reported while the partition has no leader; `None` before the report."""


class RefusingReplica(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A replica that keeps committed records which the leader lacks, and does not follow it."""

    node_id: NodeId
    offset: Offset
    """First offset that the leader lacks, or has with another record."""
    high_watermark: Offset
    """Exclusive end of the replica's records that are known to be committed."""


class PartitionRegistration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One partition: its replicas, and which of them have all committed records.

    All lists of replicas are in the order of `replicas`.
    """

    replicas: tuple[NodeId, ...]
    """Node ids; the first is the preferred leader."""
    in_sync_replicas: tuple[NodeId, ...]
    """The ISR: nothing is committed without these; all of them are alive."""
    eligible_leader_replicas: tuple[NodeId, ...] = ()
    """The ELR: not in the ISR, but known to have all committed records (KIP-966)."""
    leader: NodeId | None = None
    """A member of the ISR, `None` if none may lead."""
    leader_epoch: Epoch = 0
    """Counts leaders, times without a leader, and removals of replicas."""
    partition_epoch: Epoch = 0
    """Counts all changes of this partition."""
    last_known_leader: NodeId | None = None
    """The last leader, while the partition has none."""
    adding_replicas: tuple[NodeId, ...] = ()
    """Members of `replicas` that a reassignment adds."""
    removing_replicas: tuple[NodeId, ...] = ()
    """Members of `replicas` that a reassignment removes when it is complete."""
    data_loss_epoch: Epoch | None = None
    """Leader epoch of the last leader that may have lacked committed records."""
    offline_replicas: tuple[NodeId, ...] = ()
    """Eligible replicas that cannot lead until their broker restarts: their log is offline."""
    wiped_replicas: tuple[NodeId, ...] = ()
    """Replicas that have lost files or their disk, or have old data, and have not been in the ISR
    since: when an administrator accepts a loss, any other replica has more."""
    unverified_replicas: tuple[UnverifiedReplica, ...] = ()
    """Replicas that lead only after a comparison of log ends, until they are in the ISR again."""
    refusing_replicas: tuple[RefusingReplica, ...] = ()
    """Replicas that refuse to truncate committed records and are not in the ISR, until they join
    it, lose their files or leave, or an administrator accepts the loss."""

    @property
    def replication_factor(self) -> int:
        """The number of replicas, without those that a reassignment is adding."""
        return len(self.replicas) - len(self.adding_replicas)

    @property
    def target_replicas(self) -> tuple[NodeId, ...]:
        """The replicas without those that a reassignment removes."""
        return tuple(node for node in self.replicas if node not in self.removing_replicas)

    @property
    def in_sync_or_eligible(self) -> tuple[NodeId, ...]:
        """The replicas that are known to have all committed records."""
        return *self.in_sync_replicas, *self.eligible_leader_replicas

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding_replicas or self.removing_replicas)


class BrokerRegistered(msgspec.Struct, frozen=True, array_like=True, tag="broker-registered"):
    """A broker has registered, for the first time or again."""

    broker: BrokerRegistration


class BrokerChanged(msgspec.Struct, frozen=True, array_like=True, tag="broker-changed"):
    """A broker's fenced or shutdown state has changed, or the epoch in its data directory."""

    node_id: NodeId
    is_fenced: bool
    is_shutting_down: bool
    directory_epoch: BrokerEpoch | None = None
    """The new `BrokerRegistration.directory_epoch`, `None` for no change."""
    supported_levels: SupportedLevels | None = None
    """The new `BrokerRegistration.supported_levels`, `None` for no change."""


class BrokerUnregistered(msgspec.Struct, frozen=True, array_like=True, tag="broker-unregistered"):
    """A broker has left the cluster."""

    node_id: NodeId


class BrokerDrained(msgspec.Struct, frozen=True, array_like=True, tag="broker-drained"):
    """A broker is drained, so that it gets no replicas, or its draining is cancelled."""

    node_id: NodeId
    is_drained: bool


class PartitionsAdded(msgspec.Struct, frozen=True, array_like=True, tag="partitions-added"):
    """A topic has more partitions; the numbers go on after its last one."""

    topic_id: bytes
    partitions: list[PartitionRegistration]


Change = tuple[bytes, int, PartitionRegistration]
"""Topic id and number of a partition, and its new registration."""


class ChangedPartition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The new registration of one partition."""

    number: PartitionNumber
    partition: PartitionRegistration


class ChangedTopic(msgspec.Struct, frozen=True, array_like=True):
    """The changed partitions of one topic."""

    topic_id: bytes
    partitions: list[ChangedPartition]


class PartitionsChanged(msgspec.Struct, frozen=True, array_like=True, tag="partitions-changed"):
    """Partitions have another leader, ISR or assignment.

    One record, however many partitions change for the same reason.
    """

    topics: list[ChangedTopic]

    def changes(self) -> Iterator[Change]:
        """Return each partition and its new registration."""
        for topic in self.topics:
            topic_id = topic.topic_id
            for changed in topic.partitions:
                yield topic_id, changed.number, changed.partition


class EqualPartitions(msgspec.Struct, frozen=True, array_like=True):
    """Partitions that all have the same new registration."""

    partition: PartitionRegistration
    places: list[tuple[bytes, list[PartitionNumber]]]
    """Topic ids, with numbers of partitions."""


class EqualPartitionsChanged(
    msgspec.Struct, frozen=True, array_like=True, tag="equal-partitions-changed"
):
    """As `PartitionsChanged`, in half of the bytes for very many partitions that are alike."""

    groups: list[EqualPartitions]

    def changes(self) -> Iterator[Change]:
        """Return each partition and its new registration."""
        for group in self.groups:
            partition = group.partition
            for topic_id, numbers in group.places:
                for number in numbers:
                    yield topic_id, number, partition


PartitionChanges = PartitionsChanged | EqualPartitionsChanged


class DataLossAccepted(msgspec.Struct, frozen=True, array_like=True, tag="data-loss-accepted"):
    """An administrator accepted an unclean election: the leader may lack committed records."""

    topic_id: bytes
    partition: PartitionNumber
    leader: NodeId
    leader_epoch: Epoch
    """Leader epoch of the new leader."""
    last_known_leader: NodeId | None
    eligible_leader_replicas: tuple[NodeId, ...]
    """The replicas that had all committed records, and were removed."""
    accepted_at_ms: int
    """Wall clock of the controller."""


class ClusterEvent(msgspec.Struct, frozen=True, array_like=True, tag="cluster-event"):
    """An event that an administrator must know, such as a loss of committed records."""

    event_id: int
    """Rises by one with each event of the cluster; from 1."""
    at_ms: int
    """Wall clock of the controller, Unix milliseconds."""
    kind: str
    """See `coordinator.metadata.cluster_events.ClusterEventKind`."""
    topic_id: bytes
    """16 bytes; empty for an event of a broker."""
    topic: str
    """Name of the topic at that time; empty for an event of a broker."""
    partition: PartitionNumber | None
    node_id: NodeId | None
    """The broker of the event; `None` for none."""
    leader_epoch: Epoch | None
    """Leader epoch of the partition."""
    first_offset: Offset | None
    """First offset of the records of the event; `None` if unknown."""
    end_offset: Offset | None
    """Exclusive; `None` if unknown."""
    detail: str
    """One line: cause and consequence."""
    is_reported: bool = False
    """Whether a broker reported the event, and may do so again."""

    @property
    def record_count(self) -> int | None:
        """The number of offsets from the first to the end, `None` if one of these is unknown."""
        if self.first_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.first_offset


class EventsAcknowledged(msgspec.Struct, frozen=True, array_like=True, tag="events-acknowledged"):
    """An administrator has acknowledged events."""

    event_ids: list[int]


class ClusterConfigSet(msgspec.Struct, frozen=True, array_like=True, tag="cluster-config-set"):
    """The dynamic config of the cluster has changed."""

    overrides: dict[str, str]
    """All settings, not only the changed ones."""


class FeatureLevelSet(msgspec.Struct, frozen=True, array_like=True, tag="feature-level-set"):
    """The feature level of the cluster has changed."""

    level: FeatureLevel


Record = (
    CatalogRecord
    | BrokerRegistered
    | BrokerChanged
    | BrokerUnregistered
    | BrokerDrained
    | PartitionsAdded
    | PartitionsChanged
    | EqualPartitionsChanged
    | DataLossAccepted
    | ClusterEvent
    | EventsAcknowledged
    | ClusterConfigSet
    | FeatureLevelSet
    | TransactionRecord
    | SecurityRecord
)


class TopicSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The partitions of one topic."""

    topic_id: bytes
    partitions: list[PartitionRegistration]
    fsync_since_broker_epoch: BrokerEpoch
    """Brokers that registered earlier may hold committed records in memory only."""


class EventsSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The events that the cluster remembers, and their counters."""

    unacknowledged: tuple[ClusterEvent, ...] = ()
    """Oldest first."""
    total: int = 0
    """Events ever recorded, which is the id of the last one."""
    dropped: int = 0
    """Events that were dropped unacknowledged, because there were too many."""
    reports: tuple[ClusterEvent, ...] = ()
    """The last events that brokers reported, also acknowledged ones: a retry is no new event."""


class ClusterSnapshot(msgspec.Struct, frozen=True, array_like=True, tag="cluster-snapshot"):
    """All of the state, as of one record."""

    catalog: CatalogSnapshot
    brokers: list[BrokerRegistration]
    topics: list[TopicSnapshot]
    overrides: dict[str, str]
    next_broker_epoch: BrokerEpoch
    data_losses: list[DataLossAccepted]
    drained_node_ids: list[NodeId] = []
    transactions: TransactionsSnapshot = TransactionsSnapshot()
    events: EventsSnapshot = EventsSnapshot()
    feature_level: FeatureLevel | None = 0
    """`None` while the first nodes of a new cluster register."""
    used_level: Annotated[int, msgspec.Meta(ge=0, le=OWN_LEVELS.max_level)] = 0
    """Highest feature level of the records so far; a version that does not know it refuses the
    snapshot."""
    security: SecuritySnapshot = SecuritySnapshot()
