"""Messages that tell how far partitions go, and find offsets in them.

Pure: declarations. Partitions are asked for one by one, with a search in each if need be, or as
whole topics in columns: a reader that follows many partitions asks several times a second.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import Listed


class OffsetQuery(msgspec.Struct, frozen=True, array_like=True):
    """Ask how far one partition goes, and maybe for a record in it."""

    topic_id: bytes
    partition: int
    at_offset: int | None = None
    """Search for the time of the first record at or after this offset."""
    at_timestamp_ms: int | None = None
    """Search for the first record with this timestamp (Unix milliseconds) or a later one; not
    together with `at_offset`."""


class ListOffsetsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask how far partitions go."""

    partitions: Listed[OffsetQuery]
    """Partitions that the asked broker leads."""
    topics: Listed[str] | None = []
    """Names of whole topics, which any broker answers for; `None` asks for all topics."""
    with_sizes: bool = False
    """Whether the sizes of `topics` on disk are wanted, which takes longer."""
    from_journals: bool = False
    """Whether this is about the journals of queues: `partitions` have the ids of queues, `topics`
    are names of queues."""
    cluster_id: str | None = None
    """Of the broker that asks on behalf of others; refused by a node of another cluster. The asked
    broker then tells only what it leads itself."""


class PartitionOffsets(msgspec.Struct, frozen=True, array_like=True):
    """How far one partition goes, as its leader knows."""

    log_start_offset: int
    """The first offset still readable; 0 with an error, as the two below."""
    high_watermark: int
    """Consumers read below it (exclusive end)."""
    log_end_offset: int
    """The offset of the next record that is appended (exclusive end)."""
    has_caught_up: bool = True
    """Whether the high watermark is as high as at any leader before. A new leader hears from its
    followers first; consumers may have read further until then."""
    offset: int | None = None
    """Of the first record at or after `at_timestamp_ms`; `None` when no record is that young."""
    timestamp_ms: int | None = None
    """Of the record that was searched for; `None` when there is none, or when that at `at_offset`
    cannot be read."""
    error: ErrorDetail | None = None
    """Why there is no answer."""


class TopicOffsets(msgspec.Struct, frozen=True, array_like=True):
    """How far the partitions of one topic go; each list has a number for each partition."""

    name: str
    topic_id: bytes
    log_start_offsets: list[int]
    """First offsets still readable."""
    high_watermarks: list[int]
    """Consumers read below them (exclusive ends); never below what another leader has let them
    read."""
    sizes_bytes: list[int]
    """Bytes of the logs' segments on disk; empty if they were not asked for."""
    unknown_partitions: list[int]
    """Partitions without a leader, or whose leader does not answer or has not caught up; their
    numbers in the lists are 0."""


class ListOffsetsReply(msgspec.Struct, frozen=True, array_like=True):
    """The answers."""

    partitions: list[PartitionOffsets]
    """In the order of the request."""
    topics: list[TopicOffsets] = []
    """The topics that are there: in the order asked, or sorted by name when all were asked."""
