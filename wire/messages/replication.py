"""Replication messages of followers and leaders (Kafka: replica fetch, fetch sessions, KIP-227).

Pure: declarations. Only brokers use them. A session belongs to one connection and keeps the state
of each partition. A request and its reply hold only changes, however many partitions are followed.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import (
    BrokerEpoch,
    ByteCount,
    Epoch,
    Milliseconds,
    NodeId,
    Offset,
    PartitionNumber,
)


class ReplicaIdentity(msgspec.Struct, frozen=True, array_like=True):
    """Process and broker of a follower; refused if the metadata disagrees."""

    cluster_id: str
    node_id: NodeId
    broker_epoch: BrokerEpoch
    """Epoch of the broker's registration."""
    incarnation_id: str
    """Random id of the process, known to brokers only: no client can pretend to be a replica."""


class FollowedPartition(msgspec.Struct, frozen=True, array_like=True):
    """A partition that is added to the session."""

    number_in_session: int
    """Number of the partition in other messages. Never reused in this session."""
    topic_id: bytes
    partition: PartitionNumber
    leader_epoch: Epoch
    """Leader epoch that the follower knows; another epoch is refused."""
    leader_epochs: list[tuple[int, int]] = []
    """Epochs of the follower's log, each with the offset of its first record; only the last ones if
    there are many. Empty if the logs should not be compared: while the follower is in the ISR, or
    records of it are damaged. Since version 4."""


class ReplicaPosition(msgspec.Struct, frozen=True, array_like=True):
    """Present end of a follower's log."""

    number_in_session: int
    fetch_offset: int
    """The follower's log end offset: the first requested offset."""
    last_fetched_epoch: int | None
    """Leader epoch of the last record below, `None` if the log is empty."""
    durable_end_offset: int
    """Exclusive end of the records on the follower's disk."""
    is_whole: bool = True
    """Since version 2: whether the replica may be in the ISR. It may not while its records are
    known to be damaged, and while its disk is full or does not answer."""
    is_suspect: bool = False
    """Since version 2: whether the last batch from `fetch_offset` arrived with a wrong checksum.
    The leader then verifies its own bytes."""


class ReplicaFetchRequest(msgspec.Struct, frozen=True, array_like=True):
    """Report positions and fetch the records after them, waiting for data if there are none."""

    identity: ReplicaIdentity
    begins_session: bool
    """Whether to discard the earlier session of this connection."""
    max_wait_ms: Milliseconds
    """Latest time of the answer."""
    max_bytes: ByteCount
    """Approximate limit of all partitions; at least one batch is returned if there is one."""
    followed: list[FollowedPartition]
    """New partitions, each with a position in the same request."""
    positions: list[ReplicaPosition]
    """Positions of new partitions, of changed partitions, and of those in the last reply."""
    unfollowed: list[int]
    """Numbers of partitions that leave the session."""
    has_readers: bool = False
    """Whether clients read from the follower, so that it needs each high watermark at once. Since
    version 3."""


class Diverging(msgspec.Struct, frozen=True, array_like=True):
    """The logs of leader and follower diverge at `end_offset` at the latest (KIP-595)."""

    epoch: int | None
    """The leader's latest epoch that is not after the follower's last epoch. `None` if all of its
    epochs are later, or if the logs diverge exactly at `end_offset`."""
    end_offset: Offset
    """Exclusive end of that epoch in the leader's log."""


class ReplicaFetched(msgspec.Struct, frozen=True, array_like=True):
    """The leader's answer for one partition."""

    number_in_session: int
    batch_bytes: ByteCount
    """Length of its batches in the attachment, in the order of this list. The first batch begins
    at the position; every batch is whole."""
    high_watermark: Offset
    """Exclusive end of committed records."""
    log_start_offset: int
    diverging: Diverging | None = None
    """Set if the follower's log has records that the leader's lacks; the other fields then do not
    count."""
    error: ErrorDetail | None = None


class ReplicaFetchReply(msgspec.Struct, frozen=True, array_like=True):
    """The partitions with changes; the others have none."""

    results: list[ReplicaFetched]


class ReplicaDurable(msgspec.Struct, frozen=True, array_like=True):
    """A new durable end offset of a follower."""

    number_in_session: int
    durable_end_offset: int


class ReplicaDurableRequest(msgspec.Struct, frozen=True, array_like=True):
    """Report durable end offsets in the session of this connection, while its fetch waits."""

    identity: ReplicaIdentity
    partitions: list[ReplicaDurable]
    ends_wait: bool
    """Whether to answer the fetch at once: the follower has more to report."""


class ReplicaDurableReply(msgspec.Struct, frozen=True, array_like=True):
    """The leader has recorded the offsets."""

    known_count: int
    """Number of the partitions that are in the session."""


class ReplicaReadRequest(msgspec.Struct, frozen=True, array_like=True):
    """Fetch batches again that are damaged on a follower (range repair)."""

    identity: ReplicaIdentity
    topic_id: bytes
    partition: PartitionNumber
    leader_epoch: Epoch
    """Leader epoch that the follower knows, and in which its log was found to be a prefix of the
    leader's."""
    offset: Offset
    """The first requested offset."""
    end_offset: Offset
    """Exclusive end; not above the end of the leader's log."""
    max_bytes: ByteCount
    """Approximate limit; at least one batch is returned if there is one."""


class ReplicaReadReply(msgspec.Struct, frozen=True, array_like=True):
    """The attachment has whole batches in order, with the leader's bytes.

    The first may begin below the requested offset. It is empty if the leader has deleted them.
    """

    log_start_offset: int
