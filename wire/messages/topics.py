"""Messages that create, describe, alter and delete topics and their oldest records.

Pure: declarations.
"""

import msgspec

from tidelog.wire.messages.field_types import Listed


class CreateTopicRequest(msgspec.Struct, frozen=True, array_like=True):
    """Create one topic; durable when the reply comes."""

    name: str
    """1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'; not '.' or '..'."""
    partition_count: int
    config: dict[str, str]
    """Settings that differ from the broker's defaults, by name; see `docs/configuration.md`."""
    validate_only: bool = False
    """Say what would happen and change nothing."""
    replication_factor: int | None = None
    """Replicas of each partition; `None` for the cluster's default. Since version 2."""


class CreateTopicReply(msgspec.Struct, frozen=True, array_like=True):
    """The topic that was created, or would be."""

    topic_id: bytes
    """16 bytes; empty after `validate_only`."""
    partition_count: int
    config: dict[str, str]
    """Every setting with its value in force."""


class DescribeTopicsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for settings and offsets of topics."""

    topics: Listed[str] | None
    """Names; `None` asks for all topics."""
    is_local: bool = False
    """Whether only what the asked broker leads is wanted; of other partitions the offsets are zero.
    Since version 2."""


class PartitionDescription(msgspec.Struct, frozen=True, array_like=True):
    """The offsets of one partition."""

    partition: int
    leader_id: int | None
    leader_epoch: int
    log_start_offset: int
    """First offset still readable."""
    high_watermark: int
    """Consumers read below it (exclusive end)."""
    log_end_offset: int
    """Offset that the next record will get (exclusive end)."""
    size_bytes: int
    """Bytes of the log's segments on disk."""
    status: str = "online"
    """`online`, `read-only` (the disk is full), `offline` (the disk failed), `damaged`; or
    `unknown`: nobody leads it, or its leader does not answer. The offsets are zero then."""
    replicas: list[int] = []
    """Nodes that have a replica, first the preferred leader. Since version 2."""
    in_sync_replicas: list[int] = []
    """Those of them without which nothing is committed. Since version 2."""


class TopicDescription(msgspec.Struct, frozen=True, array_like=True):
    """One topic: identity, settings, offsets."""

    name: str
    topic_id: bytes
    config: dict[str, str]
    """Every setting with its value in force."""
    config_overrides: list[str]
    """Names of the settings that were set for this topic, sorted; the others are defaults."""
    partitions: list[PartitionDescription]
    config_of_cluster: list[str] = []
    """Names of those whose value in force is set for the cluster, for topics that do not say;
    sorted. Since version 3."""


class DescribeTopicsReply(msgspec.Struct, frozen=True, array_like=True):
    """The topics in the order asked; sorted by name when all were asked."""

    topics: list[TopicDescription]


class AlterTopicRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change settings of one topic; durable and in force when the reply comes."""

    name: str
    set_config: dict[str, str]
    """Settings to set."""
    reset_config: list[str]
    """Settings to put back to the broker's default."""


class AlterTopicReply(msgspec.Struct, frozen=True, array_like=True):
    """The settings after the change."""

    config: dict[str, str]


class DeleteTopicRequest(msgspec.Struct, frozen=True, array_like=True):
    """Delete one topic and all of its records; durable when the reply comes."""

    name: str


class DeleteTopicReply(msgspec.Struct, frozen=True, array_like=True):
    """The topic that is no more."""

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
    """Let one topic have more partitions; durable when the reply comes. Again does no harm.

    Records stay where they are; those with a key may go to another partition from now on.
    """

    name: str
    partition_count: int
    """Of the topic afterwards."""
    validate_only: bool = False
    """Say what would happen and change nothing."""


class AddPartitionsReply(msgspec.Struct, frozen=True, array_like=True):
    """The topic that has grown, or would."""

    topic_id: bytes
    partition_count: int
    """Afterwards."""
    added: int
    """How many of them are new."""
    queues: list[str]
    """The queues on the topic, sorted: they have as many partitions as the topic."""
