"""Messages that move replicas of partitions from broker to broker.

Pure: declarations.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import Listed


class PartitionMove(msgspec.Struct, frozen=True, array_like=True):
    """Where the replicas of one partition shall be."""

    topic: str
    partition: int
    replicas: list[int] | None
    """Node ids, first the preferred leader; `None` cancels a move that is under way."""


class ReassignRequest(msgspec.Struct, frozen=True, array_like=True):
    """Move replicas. What is under way or done already succeeds again."""

    moves: Listed[PartitionMove]
    """Empty to have moves planned, such that brokers have as much to do as others."""
    leaving: list[int]
    """Nodes that shall have no replicas any more, when moves are planned."""
    max_replicas: int = 100
    """How many replicas may be planned to move: each is copied as a whole."""
    plan_only: bool = False
    """Say what would be done, and change nothing."""
    replacement: int | None = None
    """Who gets what the leaving node, a single one that is not alive, has; `None` to spread it.
    Since version 2."""


class PartitionMoved(msgspec.Struct, frozen=True, array_like=True):
    """What becomes of one partition."""

    topic: str
    partition: int
    replicas_before: list[int]
    replicas: list[int]
    """Where they shall be; copies that are not needed any more go when the new ones are in sync."""
    is_under_way: bool
    """Whether replicas must be copied before it is so."""
    error: ErrorDetail | None = None
    """Why nothing was changed."""


class ReassignReply(msgspec.Struct, frozen=True, array_like=True):
    """One result for each partition, in the order asked; none when nothing needs to move.

    The copies go on when this is there; DESCRIBE_CLUSTER counts the partitions that move.
    """

    results: list[PartitionMoved]


class DrainBrokerRequest(msgspec.Struct, frozen=True, array_like=True):
    """Let a broker get no more replicas. Those that it has are moved by REASSIGN."""

    node_id: int
    is_drained: bool
    """False lets it get replicas again."""


class DrainBrokerReply(msgspec.Struct, frozen=True, array_like=True):
    """It is so."""

    replica_count: int
    """Replicas that the broker has now."""


class ListReassignmentsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask how far replicas are that are being added to partitions which this broker leads."""

    topics: Listed[str] | None
    """Only of these; `None` for all."""


class ReplicaProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far one replica is that is being added."""

    topic: str
    partition: int
    node_id: int
    """Who gets the replica."""
    record_count: int
    """Records that the leader has."""
    records_left: int
    """Of these, the new replica does not have so many."""
    size_bytes: int
    """What the leader's records take on its disk."""
    bytes_left: int
    """About so many of these bytes are left to be copied."""
    is_in_sync: bool
    """Whether this replica is done; the move is when all new ones are."""


class ListReassignmentsReply(msgspec.Struct, frozen=True, array_like=True):
    """Replicas that are being added, by topic and partition."""

    replicas: list[ReplicaProgress]
