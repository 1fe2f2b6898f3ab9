"""Messages about the disk usage of topics and its growth.

Pure: declarations.
"""

import msgspec

from tidelog.wire.messages.field_types import Listed


class TopicUsageRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the disk usage of topics."""

    topics: Listed[str] | None
    """Names; `None` asks for all topics."""
    is_local: bool = False
    """Whether to report only partitions that the asked broker leads."""


class PartitionUsage(msgspec.Struct, frozen=True, array_like=True):
    """Disk usage of the leader's replica of one partition."""

    partition: int
    leader_id: int
    size_bytes: int
    """Bytes of the log's segments with headers and footers, without indexes."""
    segment_count: int
    log_start_offset: int
    """First readable offset."""
    high_watermark: int
    """Exclusive end of the records that consumers read."""
    oldest_ms: int | None
    """Timestamp of the oldest readable record; `None` without one, or if it cannot be read."""
    ingest_bytes_per_day: int | None
    """Recent ingest, from the seal times of segments; `None` if their history is too short."""
    ingest_offsets_per_day: int | None
    """Recent ingest in offsets; each record takes one."""
    dirty_ratio: float | None = None
    """Uncompacted part of the compactable log, from 0 to 1; `None` without compaction."""


class TopicUsage(msgspec.Struct, frozen=True, array_like=True):
    """Disk usage of one topic; each replica of a partition takes about as much as the leader's."""

    name: str
    topic_id: bytes
    partition_count: int
    replication_factor: int
    """Replicas per partition; the smallest number if they differ."""
    partitions: list[PartitionUsage]
    """Partitions whose leaders answered, in order."""


class TopicUsageReply(msgspec.Struct, frozen=True, array_like=True):
    """The topics in the order of the request; sorted by name if it was for all."""

    topics: list[TopicUsage]
