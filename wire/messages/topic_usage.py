"""The message that says what the partitions of topics take on disk, and how fast that grows.

Pure: declarations.
"""

import msgspec

from tidelog.wire.messages.field_types import Listed


class TopicUsageRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask what the partitions of topics take."""

    topics: Listed[str] | None
    """Names; `None` asks for all topics."""
    is_local: bool = False
    """Whether only what the asked broker leads is wanted; other partitions are left out then."""


class PartitionUsage(msgspec.Struct, frozen=True, array_like=True):
    """What the leader's replica of one partition takes."""

    partition: int
    leader_id: int
    size_bytes: int
    """Of the segments of the log, with their headers and footers; without indexes."""
    segment_count: int
    log_start_offset: int
    """First offset still readable."""
    high_watermark: int
    """Consumers read below it (exclusive end)."""
    oldest_ms: int | None
    """Timestamp of the oldest readable record; `None` when there is none, or it cannot be read."""
    ingest_bytes_per_day: int | None
    """What came in of late, by when segments were sealed; `None` when that is too short ago."""
    ingest_offsets_per_day: int | None
    """The same in offsets, of which each record takes one."""
    dirty_ratio: float | None = None
    """How much of what can be compacted is not, from 0 to 1; `None` for what is not compacted."""


class TopicUsage(msgspec.Struct, frozen=True, array_like=True):
    """What one topic takes; of a partition with several replicas, each takes about as much."""

    name: str
    topic_id: bytes
    partition_count: int
    replication_factor: int
    """How many replicas each partition has; the smallest number if they differ."""
    partitions: list[PartitionUsage]
    """Those whose leaders answered, in order."""


class TopicUsageReply(msgspec.Struct, frozen=True, array_like=True):
    """The topics in the order asked; sorted by name when all were asked."""

    topics: list[TopicUsage]
