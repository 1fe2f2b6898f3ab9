"""Messages that create, describe, alter and delete queues.

Pure: declarations.
"""

import msgspec

from tidelog.wire.messages.field_types import Listed


class CreateQueueRequest(msgspec.Struct, frozen=True, array_like=True):
    """Create one queue, and its topic if there is none; durable when the reply comes.

    A queue of this name that is what is asked for already is no error.
    """

    name: str
    """1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'; not '.', '..' or 'none'."""
    topic: str
    """Whose records are the messages."""
    topic_id: bytes | None
    """Of the topic in which `start_offsets` were looked up; nil if there is none of this name."""
    start_offsets: Listed[int]
    """Where the queue begins in each partition; empty if there is no topic."""
    is_fifo: bool
    config: dict[str, str]
    """Settings that differ from the defaults, by name; see `docs/configuration.md`."""
    topic_config: dict[str, str]
    """Settings of the topic if it has to be made."""
    partition_count: int | None = None
    """Of the topic; nil for what it has, or one. Without it, only a topic of the queue's own name
    is made."""


class CreateQueueReply(msgspec.Struct, frozen=True, array_like=True):
    """The queue, made now or before."""

    queue_id: bytes
    """The topic id of its journal."""
    topic_id: bytes


class DescribeQueuesRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for settings and places of queues."""

    queues: Listed[str] | None
    """Names; `None` asks for all queues."""


class QueuePartitionDescription(msgspec.Struct, frozen=True, array_like=True):
    """Where one partition of a queue is served."""

    partition: int
    leader_id: int | None
    """Who serves the queue: the leader of the journal; `None` while nobody does."""
    leader_epoch: int
    start_offset: int
    """Records of the topic below it were never messages of this queue."""
    replicas: list[int]
    """Nodes that have a replica of the topic and the journal, first the preferred leader."""
    in_sync_replicas: list[int]
    """Those of them without which nothing is committed in the journal."""


class QueueDescription(msgspec.Struct, frozen=True, array_like=True):
    """One queue: identity, settings, places."""

    name: str
    queue_id: bytes
    topic: str
    topic_id: bytes
    is_fifo: bool
    created_at_ms: int
    """Unix milliseconds, by the clock of the broker that was asked to create it."""
    config: dict[str, str]
    """Every setting with its value in force."""
    config_overrides: list[str]
    """Names of the settings that were set for this queue, sorted; the others are defaults."""
    dead_letters_of: list[str]
    """Queues whose dead-letter queue it is, sorted."""
    partitions: list[QueuePartitionDescription]


class DescribeQueuesReply(msgspec.Struct, frozen=True, array_like=True):
    """The queues in the order asked; sorted by name when all were asked."""

    queues: list[QueueDescription]


class AlterQueueRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change settings of one queue; durable when the reply comes."""

    name: str
    set_config: dict[str, str]
    """Settings to set."""
    reset_config: Listed[str]
    """Settings to put back to their defaults."""


class AlterQueueReply(msgspec.Struct, frozen=True, array_like=True):
    """The settings after the change."""

    config: dict[str, str]


class DeleteQueueRequest(msgspec.Struct, frozen=True, array_like=True):
    """Delete one queue, its leases and counts; the records stay. Durable when the reply comes."""

    name: str
    with_topic: bool = False
    """Delete the topic and all of its records, too; refused if other queues stand on it."""
    detach_sources: bool = False
    """Queues whose dead-letter queue it is have none any more; without this it is not deleted while
    there are such."""


class DeleteQueueReply(msgspec.Struct, frozen=True, array_like=True):
    """The queue that is no more."""

    queue_id: bytes
