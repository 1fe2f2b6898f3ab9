"""Messages that create, describe, alter and delete topics and their oldest records.

Pure: declarations.
"""

import msgspec

from tidelog.wire.messages.cluster_admin import EventDescription
from tidelog.wire.messages.field_types import Labels, Listed, Settings


class CreateTopicRequest(msgspec.Struct, frozen=True, array_like=True):
    """Create one topic; durable when the reply comes."""

    name: str
    """1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'; the first is not '.' or '-'."""
    partition_count: int
    config: Settings
    """Settings that differ from the broker's defaults, by name; see `docs/configuration.md`."""
    validate_only: bool = False
    """Whether to return the result without a change."""
    replication_factor: int | None = None
    """Replicas per partition; `None` for the cluster's default. Since version 2."""
    labels: Labels = {}
    """Labels of the topic. Since version 3."""


class CreateTopicReply(msgspec.Struct, frozen=True, array_like=True):
    """The topic that was created, or would be."""

    topic_id: bytes
    """16 bytes; empty after `validate_only`."""
    partition_count: int
    config: dict[str, str]
    """Effective value of every setting."""


class DescribeTopicsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for settings and offsets of topics."""

    topics: Listed[str] | None
    """Names; `None` asks for all topics."""
    is_local: bool = False
    """Whether to report only partitions that the asked broker leads; the offsets of others are
    zero. Since version 2."""


class RefusedRecords(msgspec.Struct, frozen=True, array_like=True):
    """Committed records of a replica that the leader lacks; the replica does not follow it."""

    node_id: int
    """Node with the replica."""
    offset: int
    """First of the offsets."""
    end_offset: int
    """Exclusive end: the high watermark that the replica knows."""


class PartitionDescription(msgspec.Struct, frozen=True, array_like=True):
    """The offsets of one partition."""

    partition: int
    leader_id: int | None
    leader_epoch: int
    log_start_offset: int
    """First readable offset."""
    high_watermark: int
    """Exclusive end of the records that consumers read."""
    log_end_offset: int
    """Offset of the next record (exclusive end)."""
    size_bytes: int
    """Bytes of the log's segments on disk."""
    status: str = "online"
    """`online`, `read-only` (the disk is full), `offline` (the disk failed), `damaged`; or
    `unknown`: the partition has no leader, or its leader does not answer. Then the offsets are
    zero."""
    replicas: list[int] = []
    """Nodes with a replica, the preferred leader first. Since version 2."""
    in_sync_replicas: list[int] = []
    """Nodes of the ISR. Since version 2."""
    refused_records: list[RefusedRecords] = []
    """Records of replicas that refuse to truncate them. Since version 4."""
    leaderless_reason: str = ""
    """One line: why the partition has no leader, and the remedy; empty with a leader. Since version
    5."""


class TopicDescription(msgspec.Struct, frozen=True, array_like=True):
    """One topic: identity, settings, offsets."""

    name: str
    topic_id: bytes
    config: dict[str, str]
    """Effective value of every setting."""
    config_overrides: list[str]
    """Names of the settings that are set for this topic, sorted; the others are defaults."""
    partitions: list[PartitionDescription]
    config_of_cluster: list[str] = []
    """Names of the settings whose effective value is the cluster's default for topics, sorted.
    Since version 3."""
    events: list[EventDescription] = []
    """Unacknowledged events of the partitions, of the topic's queues too, oldest first. Since
    version 4."""
    labels: dict[str, str] = {}
    """Labels of the topic. Since version 6."""


class DescribeTopicsReply(msgspec.Struct, frozen=True, array_like=True):
    """The topics in the order of the request; sorted by name if it was for all."""

    topics: list[TopicDescription]


class AlterTopicRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change settings and labels of one topic; durable and in force when the reply comes."""

    name: str
    set_config: Settings
    """Settings to set."""
    reset_config: Listed[str]
    """Settings to reset to the broker's default."""
    set_labels: Labels = {}
    """Labels to set. Since version 2."""
    remove_labels: Listed[str] = []
    """Names of labels to remove; missing ones are skipped. Since version 2."""


class AlterTopicReply(msgspec.Struct, frozen=True, array_like=True):
    """The settings after the change."""

    config: dict[str, str]


class DeleteTopicRequest(msgspec.Struct, frozen=True, array_like=True):
    """Delete one topic and all of its records; durable when the reply comes."""

    name: str


class DeleteTopicReply(msgspec.Struct, frozen=True, array_like=True):
    """The deleted topic."""

    topic_id: bytes


class DeleteRecordsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Raise the log start offset of one partition; durable when the reply comes."""

    topic_id: bytes
    partition: int
    before_offset: int | None
    """Offsets below it become unreadable; `None` means all up to the high watermark."""


class DeleteRecordsReply(msgspec.Struct, frozen=True, array_like=True):
    """The offsets after the deletion."""

    log_start_offset: int


class AddPartitionsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Add partitions to one topic; durable when the reply comes. The request is idempotent.

    Existing records stay; new records with a key may go to another partition than before.
    """

    name: str
    partition_count: int
    """New partition count of the topic."""
    validate_only: bool = False
    """Whether to return the result without a change."""


class AddPartitionsReply(msgspec.Struct, frozen=True, array_like=True):
    """The topic with its new partitions, or the plan."""

    topic_id: bytes
    partition_count: int
    """New partition count."""
    added: int
    """Number of new partitions."""
    queues: list[str]
    """The queues on the topic, sorted; they have as many partitions as the topic."""
