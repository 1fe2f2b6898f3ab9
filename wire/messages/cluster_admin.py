"""Messages about the cluster as a whole: how it stands, its settings, who leads its partitions.

Pure: declarations.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail


class DescribeClusterRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask how the cluster stands, as far as the broker that is asked knows."""

    with_partitions: bool
    """Whether to list the partitions that somebody may want to look at, besides counting them."""


class NodeDescription(msgspec.Struct, frozen=True, array_like=True):
    """One node of the cluster."""

    node_id: int
    host: str
    """Where it is reached; empty when nobody has said."""
    port: int
    """The same; 0 when nobody has said."""
    rack: str
    """What fails together with it; empty for a rack of its own."""
    role: str
    """`voter`, `learner`, which is sent the metadata and does not vote, or `none`."""
    status: str
    """`alive`, `fenced`, which is silent or has not caught up yet and leads nothing, `stopping`, or
    `unknown`: it is not registered, as far as the broker that is asked knows."""
    leader_count: int
    """Partitions that it leads."""
    replica_count: int
    is_drained: bool = False
    """Whether it is to have no replicas, and gets none. Since version 2."""


class PartitionState(msgspec.Struct, frozen=True, array_like=True):
    """Who has a partition, and who leads it. Replicas are node ids, the preferred leader first."""

    topic: str
    partition: int
    leader_id: int | None
    """`None` while nobody leads it."""
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]
    eligible_leader_replicas: list[int]
    """Not in sync, but known to have all committed records."""
    adding_replicas: list[int]
    """Those that a reassignment brings."""
    removing_replicas: list[int]
    """Those that leave when the reassignment is complete."""
    last_known_leader: int | None
    """Who led last, while nobody does."""
    offline_replicas: list[int] = []
    """Eligible ones that cannot lead before their broker is started anew. Since version 3."""
    wiped_replicas: list[int] = []
    """Those that have lost files, and were not in sync since. Since version 3."""


class AcceptedLoss(msgspec.Struct, frozen=True, array_like=True):
    """Somebody had a leader elected that may lack committed records."""

    topic: str
    """Empty when the topic is deleted."""
    topic_id: bytes
    """16 bytes."""
    partition: int
    leader_id: int
    """Who was elected."""
    leader_epoch: int
    last_known_leader: int | None
    """Who led before."""
    eligible_leader_replicas: list[int]
    """Who had all committed records, and was given up."""
    accepted_at_ms: int
    """Unix milliseconds."""


class DescribeClusterReply(msgspec.Struct, frozen=True, array_like=True):
    """How the cluster stands, as far as the broker that answers knows."""

    cluster_id: str
    node_id: int
    """Who answers."""
    controller_id: int | None
    """The node that decides for the cluster, `None` while none does that this one has heard of."""
    term: int
    """Raft's count of those who were elected to decide."""
    nodes: list[NodeDescription]
    """By node id."""
    partition_count: int
    leaderless_count: int
    """Partitions that nobody leads."""
    unavailable_count: int
    """Partitions with a leader, but fewer in-sync replicas than `min_insync_replicas`."""
    under_replicated_count: int
    """Partitions with fewer in-sync replicas than replicas; the two above are in it as well."""
    not_preferred_count: int
    """Partitions that another broker leads than the preferred one."""
    reassigning_count: int
    """Partitions whose replicas are being moved."""
    data_losses: list[AcceptedLoss]
    """The last 100, oldest first."""
    partitions: list[PartitionState]
    """Those that have no leader, too few replicas in sync, not the preferred leader, or that are
    being moved; empty unless asked for."""
    config: dict[str, str] | None = None
    """Every setting of the cluster with its value in force. Since version 2; `None` before."""


class TopicToElect(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic."""

    topic: str
    partitions: list[int] | None = None
    """`None` for all."""


class ElectLeadersRequest(msgspec.Struct, frozen=True, array_like=True):
    """Let the preferred replicas lead, or anybody who can. Asking again does no harm."""

    topics: list[TopicToElect] | None
    """`None` for all partitions of the cluster for which there is something to do."""
    accept_data_loss: bool = False
    """Where nobody is left who has all committed records, take somebody who may not. Partitions
    that have a leader keep it."""


class LeaderElected(msgspec.Struct, frozen=True, array_like=True):
    """Who leads one partition now."""

    topic: str
    partition: int
    previous_leader_id: int | None
    """Before the election, as far as the broker that was asked knew."""
    leader_id: int | None
    """Now; `None` with an error, when nobody leads."""
    may_have_lost_data: bool = False
    """Whether this leader was elected although it may lack committed records."""
    error: ErrorDetail | None = None
    """Why nothing was changed."""


class ElectLeadersReply(msgspec.Struct, frozen=True, array_like=True):
    """One result for each partition: in the order asked, or by topic and number."""

    results: list[LeaderElected]


class AlterClusterConfigRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change settings of the cluster; durable and in force when the reply comes."""

    set_config: dict[str, str]
    """Settings to set: `NAME` for the cluster, `NAME@NODE` for one broker."""
    reset_config: list[str]
    """Settings to put back to their defaults."""


class AlterClusterConfigReply(msgspec.Struct, frozen=True, array_like=True):
    """The settings after the change."""

    config: dict[str, str]
    """Every setting with its value in force, and what is set for single brokers."""


class DescribeConfigRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the settings of the broker at the other end, as they are now."""


class BrokerSetting(msgspec.Struct, frozen=True, array_like=True):
    """One setting of a broker."""

    name: str
    value: str
    """What is in force now; sizes in bytes, durations in milliseconds."""
    source: str
    """Who gave it: `default`, the name of a file, of a variable of the environment or of a flag;
    `cluster` or `broker` if it was set while brokers ran, for all of them or for this one."""
    is_dynamic: bool
    """Whether `ALTER_CLUSTER_CONFIG` sets it without a restart."""


class DescribeConfigReply(msgspec.Struct, frozen=True, array_like=True):
    """All settings of one broker."""

    node_id: int
    settings: list[BrokerSetting]


class UnregisterBrokerRequest(msgspec.Struct, frozen=True, array_like=True):
    """Take a node that is gone for good out of the cluster. Asking again does no harm.

    Only when it is fenced and has no replicas. It votes no more either.
    """

    node_id: int


class UnregisterBrokerReply(msgspec.Struct, frozen=True, array_like=True):
    """The node belongs to the cluster no more."""

    was_member: bool
    """Whether it was known at all."""
