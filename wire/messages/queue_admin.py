"""Messages that create, describe, alter and delete queues.

Pure: declarations.
"""

from typing import Annotated, Final

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import Labels, Listed, LongListed, Settings

QUEUES_CREATED_MAX: Final = 100
"""Maximum queues of one request: the controller decides about all of them in one step."""


class CreateQueueRequest(msgspec.Struct, frozen=True, array_like=True):
    """Create one queue, and its topic if it is missing; durable when the reply comes.

    An existing queue of this name with the same settings is no error.
    """

    name: str
    """1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'; the first is not '.' or '-'; not
    'none'."""
    topic: str
    """The topic whose records are the messages."""
    topic_id: bytes | None
    """The topic of `start_offsets`; nil if no topic has this name."""
    start_offsets: LongListed[int]
    """First offset of the queue in each partition; empty without a topic."""
    is_fifo: bool
    config: Settings
    """Settings that differ from the defaults, by name; see `docs/configuration.md`."""
    topic_config: Settings
    """Settings of the topic if the request creates it."""
    partition_count: int | None = None
    """Partitions of the topic; nil for its present count, or 1. With nil, the request creates a
    topic of the queue's own name only."""
    labels: Labels = {}
    """Labels of the queue; an existing queue must have the same, if any are given. Since version
    2."""


class CreateQueueReply(msgspec.Struct, frozen=True, array_like=True):
    """The queue, created now or before."""

    queue_id: bytes
    """The topic id of its journal."""
    topic_id: bytes


class CreateQueuesRequest(msgspec.Struct, frozen=True, array_like=True):
    """Create queues in their order, as `CreateQueueRequest` does; each succeeds or fails alone.

    A queue may have an earlier one of the request as its dead-letter queue.
    """

    queues: Annotated[list[CreateQueueRequest], msgspec.Meta(max_length=QUEUES_CREATED_MAX)]


class QueueCreated(msgspec.Struct, frozen=True, array_like=True):
    """The queue of one item, created now or before; the ids are empty with an error."""

    queue_id: bytes
    topic_id: bytes
    error: ErrorDetail | None = None


class CreateQueuesReply(msgspec.Struct, frozen=True, array_like=True):
    """One result for each queue of the request, in its order."""

    results: list[QueueCreated]


class DescribeQueuesRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the settings and leaders of queues."""

    queues: Listed[str] | None
    """Names; `None` asks for all queues."""


class QueuePartitionDescription(msgspec.Struct, frozen=True, array_like=True):
    """Leader and replicas of one partition of a queue."""

    partition: int
    leader_id: int | None
    """The leader of the journal, which serves the queue; `None` without a leader."""
    leader_epoch: int
    start_offset: int
    """Records of the topic below it were never messages of this queue."""
    replicas: list[int]
    """Nodes with a replica of the topic and the journal, the preferred leader first."""
    in_sync_replicas: list[int]
    """The ISR of the journal."""


class QueueDescription(msgspec.Struct, frozen=True, array_like=True):
    """One queue: identity, settings, partitions."""

    name: str
    queue_id: bytes
    topic: str
    topic_id: bytes
    is_fifo: bool
    created_at_ms: int
    """Unix milliseconds, by the clock of the broker that received the request."""
    config: dict[str, str]
    """Effective value of every setting."""
    config_overrides: list[str]
    """Names of the settings that are set for this queue, sorted; the others are defaults."""
    dead_letters_of: list[str]
    """Queues that use this queue as their dead-letter queue, sorted."""
    partitions: list[QueuePartitionDescription]
    topic_retention_ms: int | None = None
    """How long the topic keeps records, in milliseconds; `None` without a limit."""
    topic_retention_bytes: int | None = None
    """Size in bytes to which the topic limits each partition; `None` without a limit."""
    labels: dict[str, str] = {}
    """Labels of the queue. Since version 2."""
    modified_at_ms: int | None = None
    """Unix milliseconds of the last change of settings or labels, by the clock of the broker that
    received the request; `None` if there was none at feature level 7 or above. Since version 3."""


class DescribeQueuesReply(msgspec.Struct, frozen=True, array_like=True):
    """The queues in the order of the request; sorted by name if it was for all."""

    queues: list[QueueDescription]


class AlterQueueRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change settings and labels of one queue; durable when the reply comes."""

    name: str
    set_config: Settings
    """Settings to set."""
    reset_config: Listed[str]
    """Settings to reset to their defaults."""
    set_labels: Labels = {}
    """Labels to set. Since version 2."""
    remove_labels: Listed[str] = []
    """Names of labels to remove; missing ones are skipped. Since version 2."""


class AlterQueueReply(msgspec.Struct, frozen=True, array_like=True):
    """The settings after the change."""

    config: dict[str, str]


class DeleteQueueRequest(msgspec.Struct, frozen=True, array_like=True):
    """Delete one queue with its leases and receive counts; the records stay. Durable on reply."""

    name: str
    with_topic: bool = False
    """Whether to delete the topic and its records too; refused if other queues use the topic."""
    detach_sources: bool = False
    """Whether to unset the dead-letter queue of queues that use this queue as theirs. Without it,
    the deletion is refused while such queues exist."""


class DeleteQueueReply(msgspec.Struct, frozen=True, array_like=True):
    """The deleted queue."""

    queue_id: bytes
