"""Messages about the whole cluster: its state, its settings, elections of leaders.

Pure: declarations.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import Listed, LongListed, PartitionNumber, Settings


class DescribeClusterRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the state of the cluster, as known to the asked broker."""

    with_partitions: bool
    """Whether to list the unhealthy partitions, besides counting them."""


class NodeDescription(msgspec.Struct, frozen=True, array_like=True):
    """One node of the cluster."""

    node_id: int
    host: str
    """Host of the node; empty if unknown."""
    port: int
    """Port of the node; 0 if unknown."""
    rack: str
    """Failure domain of the node; empty for a rack of its own."""
    role: str
    """`voter`, `learner` (receives the metadata and does not vote) or `none`."""
    status: str
    """`alive`, `fenced` (sends no heartbeats or has not caught up yet, and leads no partition),
    `stopping` or `unknown` (not registered, as far as the asked broker knows). Since version 7,
    the other nodes are `unknown` too while the metadata of the asked broker are stale."""
    leader_count: int
    """Partitions that the node leads."""
    replica_count: int
    is_drained: bool = False
    """Whether the node gets no replicas and its replicas are to move. Since version 2."""
    clock_skew_ms: int | None = None
    """How far the node's wall clock is ahead of the time on which a majority agrees; `None` if
    that is unknown. Since version 4."""
    damaged_count: int | None = None
    """Replicas of the node with known damage that is not repaired, as last reported; `None` if that
    is unknown. Since version 6."""
    last_known_status: str = ""
    """Status in stale metadata, where `status` is `unknown` for that reason; else empty. Since
    version 7."""


class PartitionState(msgspec.Struct, frozen=True, array_like=True):
    """Replicas and leader of a partition. Replicas are node ids, the preferred leader first."""

    topic: str
    partition: int
    leader_id: int | None
    """`None` while the partition has no leader."""
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]
    eligible_leader_replicas: list[int]
    """Replicas outside the ISR that are known to have all committed records."""
    adding_replicas: list[int]
    """Replicas that a reassignment adds."""
    removing_replicas: list[int]
    """Replicas that leave when the reassignment is complete."""
    last_known_leader: int | None
    """The last leader, while the partition has none."""
    offline_replicas: list[int] = []
    """Eligible replicas that cannot lead before their broker restarts. Since version 3."""
    wiped_replicas: list[int] = []
    """Replicas that have lost files and were not in the ISR since. Since version 3."""
    leaderless_kind: str = ""
    """Kind of the reason why the partition has no leader, as in `LeaderlessPartitions`; empty with
    a leader. Since version 5."""
    leaderless_reason: str = ""
    """One line: why the partition has no leader, and the remedy; empty with a leader. Since version
    5."""
    damaged_replicas: list[int] = []
    """Replicas with known damage that is not repaired, as far as `DescribeClusterReply.damaged` has
    them. Since version 6."""


class DamagedReplica(msgspec.Struct, frozen=True, array_like=True):
    """A replica with known damage that is not repaired."""

    topic: str
    partition: int
    node_id: int


class LeaderlessPartitions(msgspec.Struct, frozen=True, array_like=True):
    """The partitions that have no leader for the same kind of reason."""

    kind: str
    """`waits_for_replicas`, `no_replica_is_back`, `log_offline` or `no_complete_replica`."""
    partition_count: int
    topic: str
    """Topic of the first of these partitions."""
    partition: int
    """Number of the first of these partitions."""
    reason: str
    """One line: why the first of these partitions has no leader, and the remedy."""


class EventDescription(msgspec.Struct, frozen=True, array_like=True):
    """An event of the cluster that needs an administrator, such as a loss of committed records."""

    event_id: int
    """Rises by one with each event of the cluster."""
    at_ms: int
    """Clock of the controller, Unix milliseconds."""
    kind: str
    """`data_loss_accepted`, `elected_without_replicas`, `records_lost`, `leader_lacks_records` or
    `old_directory`; a newer broker may send others."""
    topic: str
    """Empty for an event of a broker."""
    topic_id: bytes
    """16 bytes; empty for an event of a broker."""
    partition: int | None
    node_id: int | None
    """The broker of the event: the elected one, or the one that removed records."""
    leader_epoch: int | None
    first_offset: int | None
    """First offset of the records of the event; `None` if unknown."""
    end_offset: int | None
    """Exclusive; `None` if unknown."""
    record_count: int | None
    """Offsets from the first to the end; `None` if one of them is unknown."""
    detail: str
    """One line: cause and consequence."""


class AcceptedLoss(msgspec.Struct, frozen=True, array_like=True):
    """An unclean election: an operator accepted a leader that may lack committed records."""

    topic: str
    """Empty when the topic is deleted."""
    topic_id: bytes
    """16 bytes."""
    partition: int
    leader_id: int
    """The elected leader."""
    leader_epoch: int
    last_known_leader: int | None
    """The leader before."""
    eligible_leader_replicas: list[int]
    """The eligible replicas that the election removed."""
    accepted_at_ms: int
    """Unix milliseconds."""


class DescribeClusterReply(msgspec.Struct, frozen=True, array_like=True):
    """State of the cluster, as known to the replying broker."""

    cluster_id: str
    node_id: int
    """The replying broker."""
    controller_id: int | None
    """The controller; `None` while the replying broker knows of none."""
    term: int
    """Raft term of the metadata quorum."""
    nodes: list[NodeDescription]
    """By node id."""
    partition_count: int
    leaderless_count: int
    """Partitions without a leader."""
    unavailable_count: int
    """Partitions with a leader, but fewer in-sync replicas than `min_insync_replicas`."""
    under_replicated_count: int
    """Partitions with fewer in-sync replicas than replicas, including the two counts above."""
    not_preferred_count: int
    """Partitions whose leader is not the preferred leader."""
    reassigning_count: int
    """Partitions in reassignment."""
    data_losses: list[AcceptedLoss]
    """The last 100, oldest first."""
    partitions: list[PartitionState]
    """Partitions without a leader, with too few in-sync replicas, with another leader than the
    preferred one, in reassignment, or since version 6 with a damaged replica; empty unless
    requested."""
    config: dict[str, str] | None = None
    """Effective value of every setting of the cluster. Since version 2; `None` before."""
    clock_skew_max_ms: int | None = None
    """Maximum `clock_skew_ms` of a broker that deletes records by time. Since version 4; `None`
    before."""
    events: list[EventDescription] = []
    """The events that no administrator has acknowledged, oldest first. Since version 5."""
    event_count: int = 0
    """Events ever recorded. Since version 5."""
    dropped_event_count: int = 0
    """Events that were dropped unacknowledged, because there were more than 1000. Since version
    5."""
    leaderless: list[LeaderlessPartitions] = []
    """The partitions without a leader, by kind of reason. Since version 5."""
    default_replication_factor: int | None = None
    """Replicas of new topics, as far as there are brokers for them. Since version 6; `None`
    before."""
    below_default_count: int = 0
    """Topics with fewer replicas than `default_replication_factor`. Since version 6."""
    damaged_count: int = 0
    """Damaged replicas of all nodes. Since version 6."""
    damaged: list[DamagedReplica] = []
    """The damaged replicas by topic, partition and node, at most 20 of each node. Since version
    6."""
    metadata_age_ms: int | None = None
    """Milliseconds since the metadata of the replying broker were current, as a majority confirmed;
    `None`: never since the start of the broker, or unknown before version 7."""
    metadata_age_max_ms: int | None = None
    """Milliseconds after which metadata are stale: the session timeout of brokers. The partition
    counts describe the past then. Since version 7; `None` before."""


class TopicToElect(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic."""

    topic: str
    partitions: LongListed[PartitionNumber] | None = None
    """`None` for all."""


class ElectLeadersRequest(msgspec.Struct, frozen=True, array_like=True):
    """Elect the preferred leaders, or any eligible replica. The request is idempotent."""

    topics: Listed[TopicToElect] | None
    """`None` for all partitions of the cluster that need an election."""
    accept_data_loss: bool = False
    """Whether unclean elections are allowed: if no replica with all committed records is left,
    elect a replica that may lack some. Partitions with a leader keep it."""


class LeaderElected(msgspec.Struct, frozen=True, array_like=True):
    """Result of an election for one partition."""

    topic: str
    partition: int
    previous_leader_id: int | None
    """The leader before the election, as known to the asked broker."""
    leader_id: int | None
    """The leader now; `None` with an error, when the partition has no leader."""
    may_have_lost_data: bool = False
    """Whether the election was unclean."""
    error: ErrorDetail | None = None
    """The reason if no leader changed."""


class ElectLeadersReply(msgspec.Struct, frozen=True, array_like=True):
    """One result per partition, in the order of the request, or by topic and number."""

    results: list[LeaderElected]


class AlterClusterConfigRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change settings of the cluster; durable and in force when the reply comes."""

    set_config: Settings
    """Settings to set: `NAME` for the cluster, `NAME@NODE` for one broker."""
    reset_config: Listed[str]
    """Settings to reset to their defaults."""


class AlterClusterConfigReply(msgspec.Struct, frozen=True, array_like=True):
    """The settings after the change."""

    config: dict[str, str]
    """Effective value of every setting, and the settings of single brokers."""


class DescribeConfigRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a broker for its present settings."""


class BrokerSetting(msgspec.Struct, frozen=True, array_like=True):
    """One setting of a broker."""

    name: str
    value: str
    """Effective value; sizes in bytes, durations in milliseconds."""
    source: str
    """Source of the value: `default`, the name of a file, of an environment variable or of a flag;
    `cluster` or `broker` for dynamic config of all brokers or of this broker; `limit of open files`
    if that lowered it."""
    is_dynamic: bool
    """Whether `ALTER_CLUSTER_CONFIG` changes the setting without a restart."""


class DescribeConfigReply(msgspec.Struct, frozen=True, array_like=True):
    """All settings of one broker."""

    node_id: int
    settings: list[BrokerSetting]


class UnregisterBrokerRequest(msgspec.Struct, frozen=True, array_like=True):
    """Remove a node that will not return from the cluster. The request is idempotent.

    The node must be fenced and have no replicas. A removed node does not vote any more.
    """

    node_id: int


class UnregisterBrokerReply(msgspec.Struct, frozen=True, array_like=True):
    """The node is removed from the cluster."""

    was_member: bool
    """Whether the cluster knew the node."""


class AcknowledgeEventsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Acknowledge events of the cluster. The request is idempotent."""

    event_ids: Listed[int]
    up_to_id: int | None = None
    """All events up to this one (inclusive) are acknowledged as well; `None` for none."""


class AcknowledgeEventsReply(msgspec.Struct, frozen=True, array_like=True):
    """The events are acknowledged."""

    unacknowledged_count: int
    """Events that are left."""


class SafeToStopRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask whether a node may stop without making anything unavailable."""

    node_id: int


class PartitionAtRisk(msgspec.Struct, frozen=True, array_like=True):
    """A partition with too few in-sync replicas if the node stops."""

    topic: str
    partition: int
    remaining_in_sync: list[int]
    """Live in-sync replicas without the node; the partition has no leader if there are none."""
    min_insync_replicas: int
    """In-sync replicas without which the partition refuses writes; at least 1."""


class SafeToStopReply(msgspec.Struct, frozen=True, array_like=True):
    """The consequences of a stop."""

    node_id: int
    is_safe: bool
    reasons: list[str]
    """One line each: why the node must not stop; empty if it may."""
    partition_count: int
    """Number of partitions at risk."""
    partitions: list[PartitionAtRisk]
    """The first 20 of them, by name and number."""
    voters: list[int]
    """Nodes whose majority elects the controller."""
    remaining_voters: list[int]
    """Live voters without the node."""
    metadata_age_ms: int | None
    """Time since the metadata of the answering broker were current; `None` if they never were."""
