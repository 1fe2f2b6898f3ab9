"""Messages of reassignments: moves of replicas between brokers.

Pure: declarations.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import Listed, PartitionNumber


class PartitionMove(msgspec.Struct, frozen=True, array_like=True):
    """The target replicas of one partition."""

    topic: str
    partition: PartitionNumber
    replicas: Listed[int] | None
    """Node ids, the preferred leader first; `None` cancels a running reassignment."""


class ReassignRequest(msgspec.Struct, frozen=True, array_like=True):
    """Move replicas. A move that runs or is complete already succeeds again."""

    moves: Listed[PartitionMove]
    """The moves; empty to let the cluster plan moves."""
    leaving: Listed[int]
    """Nodes from which planned moves remove all replicas."""
    max_replicas: int = 100
    """Maximum replicas in planned moves: each is copied completely."""
    plan_only: bool = False
    """Whether to return the plan without a change."""
    replacement: int | None = None
    """Node that gets all replicas of the single leaving node, which is not alive; `None` to spread
    them. Since version 2."""
    replication_factor: int | None = None
    """Replicas per partition that planned moves lead to; `None` for as many as before. Since
    version 3."""
    topics: Listed[str] | None = None
    """With `replication_factor`: the topics; `None` for all that have fewer replicas. Since
    version 3."""


class PartitionMoved(msgspec.Struct, frozen=True, array_like=True):
    """Result of the reassignment of one partition."""

    topic: str
    partition: int
    replicas_before: list[int]
    replicas: list[int]
    """Target replicas; the surplus replicas are removed when the new ones are in the ISR."""
    is_under_way: bool
    """Whether replicas must be copied first."""
    error: ErrorDetail | None = None
    """The reason if nothing was changed."""


class ReassignReply(msgspec.Struct, frozen=True, array_like=True):
    """One result per partition, in the order of the request; none if nothing needs to move.

    Copying continues after the reply; DESCRIBE_CLUSTER counts the partitions in reassignment.
    """

    results: list[PartitionMoved]


class DrainBrokerRequest(msgspec.Struct, frozen=True, array_like=True):
    """Exclude a broker from new replicas. REASSIGN moves the replicas that it has."""

    node_id: int
    is_drained: bool
    """False allows new replicas again."""


class DrainBrokerReply(msgspec.Struct, frozen=True, array_like=True):
    """The change is committed."""

    replica_count: int
    """Present replicas of the broker."""


class ListReassignmentsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the progress of adding replicas in the partitions that the broker leads."""

    topics: Listed[str] | None
    """Names of topics; `None` for all."""


class ReplicaProgress(msgspec.Struct, frozen=True, array_like=True):
    """Progress of one adding replica."""

    topic: str
    partition: int
    node_id: int
    """The broker of the new replica."""
    record_count: int
    """Records of the leader."""
    records_left: int
    """Records of the leader that the new replica lacks."""
    size_bytes: int
    """Bytes of the leader's records on its disk."""
    bytes_left: int
    """Approximate bytes that the new replica lacks."""
    is_in_sync: bool
    """Whether this replica is in the ISR; the move is complete when all new replicas are."""


class ListReassignmentsReply(msgspec.Struct, frozen=True, array_like=True):
    """Adding replicas, by topic and partition."""

    replicas: list[ReplicaProgress]
