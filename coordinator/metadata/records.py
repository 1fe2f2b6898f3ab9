"""What the metadata log of a cluster consists of, and what brokers and partitions look like.

Pure: declarations. A record is a msgpack array that begins with its tag. A record that means
something else gets another tag; a field is only ever appended, with a default. The records of
`coordinator.metadata.catalog` are records of a cluster as well.
"""

import msgspec

from tidelog.coordinator.metadata.catalog import CatalogSnapshot
from tidelog.coordinator.metadata.catalog import Record as CatalogRecord
from tidelog.coordinator.metadata.transactions import TransactionRecord, TransactionsSnapshot


class BrokerRegistration(msgspec.Struct, frozen=True, array_like=True):
    """One broker as it registered last."""

    node_id: int
    disk_id: str
    """Drawn when its data directory was made: another disk has none of the records."""
    incarnation_id: str
    """Drawn at each start of the process."""
    broker_epoch: int
    """Rises with each registration in the cluster; tells the lives of a broker apart (KIP-903)."""
    host: str
    port: int
    rack: str
    """What fails together, such as a machine or a rack; empty for a domain of its own."""
    is_fenced: bool = True
    """It was silent, or has not caught up yet: it leads nothing and is in sync with nothing."""
    is_shutting_down: bool = False
    """It is about to stop: it gets no leadership any more."""
    replaced_incarnation_ids: tuple[str, ...] = ()
    """Processes that this one took over from, newest first; the last few."""

    @property
    def can_lead(self) -> bool:
        """Whether it may be given leaderships and join in-sync replicas."""
        return not (self.is_fenced or self.is_shutting_down)


class PartitionRegistration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One partition: where its replicas are, and which of them have what is committed.

    All lists of replicas are in the order of `replicas`.
    """

    replicas: tuple[int, ...]
    """Node ids; the first is the preferred leader."""
    in_sync_replicas: tuple[int, ...]
    """Those without which nothing is committed; all of them are alive."""
    eligible_leader_replicas: tuple[int, ...] = ()
    """Not in sync, but known to have all committed records (KIP-966)."""
    leader: int | None = None
    """One of the in-sync replicas, `None` when none may lead."""
    leader_epoch: int = 0
    """Counts leaders, times without one, and removals of replicas."""
    partition_epoch: int = 0
    """Counts all changes of this partition."""
    last_known_leader: int | None = None
    """Who led last, while nobody does."""
    adding_replicas: tuple[int, ...] = ()
    """Members of `replicas` that a reassignment brings."""
    removing_replicas: tuple[int, ...] = ()
    """Members of `replicas` that leave when the reassignment is complete."""
    data_loss_epoch: int | None = None
    """Leader epoch of the last leader that may have lacked committed records."""
    offline_replicas: tuple[int, ...] = ()
    """Eligible ones that cannot lead before their broker is started anew: their log is offline."""
    wiped_replicas: tuple[int, ...] = ()
    """Those that have lost files, or their disk, and were not in sync since: when somebody accepts
    a loss, any other one has more."""

    @property
    def replication_factor(self) -> int:
        """How many replicas there are to be; those that are only being added do not count."""
        return len(self.replicas) - len(self.adding_replicas)

    @property
    def in_sync_or_eligible(self) -> tuple[int, ...]:
        """Who is known to have all committed records."""
        return *self.in_sync_replicas, *self.eligible_leader_replicas

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding_replicas or self.removing_replicas)


class BrokerRegistered(msgspec.Struct, frozen=True, array_like=True, tag="broker-registered"):
    """A broker is there, or there anew."""

    broker: BrokerRegistration


class BrokerChanged(msgspec.Struct, frozen=True, array_like=True, tag="broker-changed"):
    """A broker is fenced, or no longer; is about to stop, or is not."""

    node_id: int
    is_fenced: bool
    is_shutting_down: bool


class BrokerUnregistered(msgspec.Struct, frozen=True, array_like=True, tag="broker-unregistered"):
    """A broker belongs to the cluster no more."""

    node_id: int


class BrokerDrained(msgspec.Struct, frozen=True, array_like=True, tag="broker-drained"):
    """A broker is to have no replicas, and gets none any more; or it may have some again."""

    node_id: int
    is_drained: bool


class PartitionsAdded(msgspec.Struct, frozen=True, array_like=True, tag="partitions-added"):
    """A topic has more partitions; the first of them is the next one that it did not have."""

    topic_id: bytes
    partitions: list[PartitionRegistration]


class ChangedPartition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A partition as it is from now on."""

    number: int
    partition: PartitionRegistration


class ChangedTopic(msgspec.Struct, frozen=True, array_like=True):
    """The changed partitions of one topic."""

    topic_id: bytes
    partitions: list[ChangedPartition]


class PartitionsChanged(msgspec.Struct, frozen=True, array_like=True, tag="partitions-changed"):
    """Partitions have another leader, other in-sync replicas, other replicas.

    One record, however many partitions change for the same reason.
    """

    topics: list[ChangedTopic]


class DataLossAccepted(msgspec.Struct, frozen=True, array_like=True, tag="data-loss-accepted"):
    """Somebody had a leader elected that may lack committed records."""

    topic_id: bytes
    partition: int
    leader: int
    leader_epoch: int
    """Of the new leader."""
    last_known_leader: int | None
    eligible_leader_replicas: tuple[int, ...]
    """The replicas that had all committed records, and were removed."""
    accepted_at_ms: int
    """Wall clock of the node that decided."""


class ClusterConfigSet(msgspec.Struct, frozen=True, array_like=True, tag="cluster-config-set"):
    """The cluster has other settings."""

    overrides: dict[str, str]
    """All of them, not only the changed ones."""


Record = (
    CatalogRecord
    | BrokerRegistered
    | BrokerChanged
    | BrokerUnregistered
    | BrokerDrained
    | PartitionsAdded
    | PartitionsChanged
    | DataLossAccepted
    | ClusterConfigSet
    | TransactionRecord
)


class TopicSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The partitions of one topic."""

    topic_id: bytes
    partitions: list[PartitionRegistration]
    fsync_since_broker_epoch: int
    """Brokers that registered earlier may hold committed records in memory only."""


class ClusterSnapshot(msgspec.Struct, frozen=True, array_like=True, tag="cluster-snapshot"):
    """All of the state, as of one record."""

    catalog: CatalogSnapshot
    brokers: list[BrokerRegistration]
    topics: list[TopicSnapshot]
    overrides: dict[str, str]
    next_broker_epoch: int
    data_losses: list[DataLossAccepted]
    drained_node_ids: list[int] = []
    transactions: TransactionsSnapshot = TransactionsSnapshot()
