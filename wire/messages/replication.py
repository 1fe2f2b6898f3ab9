"""Messages by which a broker follows the partitions that another one leads.

Pure: declarations. They are spoken between brokers only. A session belongs to one connection: what
was said of a partition counts until something else is said, so a request and its reply hold only
what has changed, however many partitions are followed.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import ByteCount, Milliseconds


class ReplicaIdentity(msgspec.Struct, frozen=True, array_like=True):
    """Which process of which broker follows; refused if it is not as in the metadata."""

    cluster_id: str
    node_id: int
    broker_epoch: int
    """Of its registration."""
    incarnation_id: str
    """Drawn at its start, and told to brokers only: no client can claim to be a replica."""


class FollowedPartition(msgspec.Struct, frozen=True, array_like=True):
    """A partition that the session is about from now on."""

    number_in_session: int
    """By which everything else refers to it. Never used again in this session."""
    topic_id: bytes
    partition: int
    leader_epoch: int
    """In which the follower knows the leader; refused in another."""
    leader_epochs: list[tuple[int, int]] = []
    """Which epochs wrote the follower's log, each with the offset of its first record; the last
    ones, if there are many. Empty when it should not be compared: while the cluster counts on it,
    or records of it are damaged. Since version 4."""


class ReplicaPosition(msgspec.Struct, frozen=True, array_like=True):
    """Where the log of a follower ends now."""

    number_in_session: int
    fetch_offset: int
    """Its log end: the first offset wanted."""
    last_fetched_epoch: int | None
    """Leader epoch of the last record below, `None` when the log is empty."""
    durable_end_offset: int
    """Below it everything is on its disk (exclusive end)."""
    is_whole: bool = True
    """Since version 2: whether the replica may be in sync. It may not while records of it are known
    to be damaged, and while its disk is full or does not answer."""
    is_suspect: bool = False
    """Since version 2: whether the batch that came last from `fetch_offset` had a wrong checksum.
    The leader then looks at its own bytes."""


class ReplicaFetchRequest(msgspec.Struct, frozen=True, array_like=True):
    """Report positions, and get what comes behind them, waiting for data if there is none."""

    identity: ReplicaIdentity
    begins_session: bool
    """All that was said on this connection before is forgotten."""
    max_wait_ms: Milliseconds
    """Answer after this time at the latest."""
    max_bytes: ByteCount
    """Stop at about so many bytes in all; at least one batch is returned if there is one."""
    followed: list[FollowedPartition]
    """Each with a position in the same request."""
    positions: list[ReplicaPosition]
    """Of new partitions, of those that have moved, and of those in the last reply."""
    unfollowed: list[int]
    """Numbers in the session of partitions that it is not about any more."""
    has_readers: bool = False
    """Whether clients read at the follower: it wants to know at once what is committed. Since
    version 3."""


class Diverging(msgspec.Struct, frozen=True, array_like=True):
    """The logs of leader and follower part at `end_offset` at the latest."""

    epoch: int | None
    """The latest epoch of the leader's log that is not after the follower's last one; `None` when
    all of its epochs are later, or when `end_offset` is where the logs part."""
    end_offset: int
    """Where that epoch ends in the leader's log (exclusive)."""


class ReplicaFetched(msgspec.Struct, frozen=True, array_like=True):
    """What the leader says of one partition."""

    number_in_session: int
    batch_bytes: ByteCount
    """Length of its batches in the attachment, in the order of this list. The first batch begins
    at the position; every batch is whole."""
    high_watermark: int
    """Records below it are committed (exclusive end)."""
    log_start_offset: int
    diverging: Diverging | None = None
    """The follower's log has records that the leader's does not have: nothing else counts."""
    error: ErrorDetail | None = None


class ReplicaFetchReply(msgspec.Struct, frozen=True, array_like=True):
    """What is new; of partitions that are not in here, nothing is."""

    results: list[ReplicaFetched]


class ReplicaDurable(msgspec.Struct, frozen=True, array_like=True):
    """More of what a follower has reported is on its disk."""

    number_in_session: int
    durable_end_offset: int


class ReplicaDurableRequest(msgspec.Struct, frozen=True, array_like=True):
    """Report what is on disk, in the session of this connection, while a fetch of it waits."""

    identity: ReplicaIdentity
    partitions: list[ReplicaDurable]
    ends_wait: bool
    """Answer the fetch at once with what there is: the follower has more to say."""


class ReplicaDurableReply(msgspec.Struct, frozen=True, array_like=True):
    """The leader has taken note."""

    known_count: int
    """How many of the partitions the session knows."""


class ReplicaReadRequest(msgspec.Struct, frozen=True, array_like=True):
    """Get batches again that are damaged at a follower."""

    identity: ReplicaIdentity
    topic_id: bytes
    partition: int
    leader_epoch: int
    """In which the follower knows the leader, and was found to have a beginning of its log."""
    offset: int
    """The first offset wanted."""
    end_offset: int
    """Where to stop (exclusive); not above the end of the leader's log."""
    max_bytes: ByteCount
    """Stop at about so many bytes; at least one batch is returned if there is one."""


class ReplicaReadReply(msgspec.Struct, frozen=True, array_like=True):
    """The attachment has whole batches, as the leader has them, one after the other.

    The first may begin below the offset that was asked for. None when the leader has deleted them.
    """

    log_start_offset: int
