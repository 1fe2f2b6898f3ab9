"""Messages about the offsets of partitions: start, end, and searches by offset or time.

Pure: declarations. A request names single partitions, with a search in each if needed, or whole
topics. Topics are answered in columns: a reader of many partitions asks several times a second.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import LongListed


class OffsetQuery(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the offsets of one partition, and optionally search for a record."""

    topic_id: bytes
    partition: int
    at_offset: int | None = None
    """Search for the time of the first record at or after this offset."""
    at_timestamp_ms: int | None = None
    """Search for the first record with this timestamp (Unix milliseconds) or a later one. Excludes
    `at_offset`."""


class ListOffsetsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the offsets of partitions."""

    partitions: LongListed[OffsetQuery]
    """Partitions that the asked broker leads."""
    topics: LongListed[str] | None = []
    """Names of whole topics, for which any broker answers; `None` asks for all topics."""
    with_sizes: bool = False
    """Whether to return the sizes of `topics` on disk, which takes longer."""
    from_journals: bool = False
    """Whether the request is about the journals of queues: `partitions` then hold ids of queues,
    and `topics` names of queues."""
    cluster_id: str | None = None
    """Cluster of a broker that asks on behalf of a client; a node of another cluster refuses it.
    The asked broker then answers for its own partitions only."""
    with_leader_epochs: bool = False
    """Whether to return the leader epochs of `topics`. Since version 2."""


class PartitionOffsets(msgspec.Struct, frozen=True, array_like=True):
    """The offsets of one partition, as known to its leader."""

    log_start_offset: int
    """The first readable offset; 0 with an error, as the two below."""
    high_watermark: int
    """Exclusive end of the records that consumers read."""
    log_end_offset: int
    """The offset of the next appended record (exclusive end)."""
    has_caught_up: bool = True
    """Whether the high watermark is at least that of every earlier leader. A new leader waits for
    its followers' positions; consumers may have read further before."""
    offset: int | None = None
    """Offset of the first record at or after `at_timestamp_ms`; `None` if there is none."""
    timestamp_ms: int | None = None
    """Timestamp of the found record; `None` without one, or if the record at `at_offset` cannot be
    read."""
    error: ErrorDetail | None = None
    """The reason if there is no answer."""


class TopicOffsets(msgspec.Struct, frozen=True, array_like=True):
    """The offsets of one topic's partitions; each list has one number per partition."""

    name: str
    topic_id: bytes
    log_start_offsets: list[int]
    """First readable offsets."""
    high_watermarks: list[int]
    """Exclusive ends of the records that consumers read; never below those of an earlier leader."""
    sizes_bytes: list[int]
    """Bytes of the logs' segments on disk; empty unless requested."""
    unknown_partitions: list[int]
    """Partitions without a leader, or whose leader does not answer or has not caught up. Their
    numbers in the lists are 0."""
    leader_epochs: list[int | None] = []
    """Leader epochs of the last records below the high watermarks, `None` if there is no record or
    the partition is unknown; empty unless requested. Since version 2."""


class ListOffsetsReply(msgspec.Struct, frozen=True, array_like=True):
    """The answers."""

    partitions: list[PartitionOffsets]
    """In the order of the request."""
    topics: list[TopicOffsets] = []
    """The existing topics, in the order of the request; sorted by name if it was for all."""
