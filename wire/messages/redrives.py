"""Messages about the progress of redrives (SQS: ListMessageMoveTasks).

Pure: declarations. The request that starts and cancels a redrive is in `wire.messages.queues`.
"""

from enum import IntEnum

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import LongListed


class RedriveStatus(IntEnum):
    """Status of a redrive."""

    RUNNING = 0
    COMPLETED = 1
    """The redrive has checked all messages; some moves may be pending."""
    CANCELLED = 2
    """No more messages are removed; pending moves complete nevertheless."""
    FAILED = 3


class DescribeRedriveRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the redrives of partitions that the broker leads."""

    queue_id: bytes
    """Id of the dead-letter queue."""
    partitions: LongListed[int]
    with_earlier: bool = False
    """Whether to return up to nine earlier redrives of each partition."""


class RedriveDescription(msgspec.Struct, frozen=True, array_like=True):
    """The running redrive of one partition, or the last one."""

    partition: int
    status: int | None = None
    """A `RedriveStatus`; nil if there was no redrive."""
    started_ms: int = 0
    """Unix milliseconds, by the clock of the broker that started it."""
    ended_ms: int | None = None
    """Time at which all messages were checked, or of the cancellation; nil while it runs."""
    to_move: int = 0
    """Messages in the queue at the start."""
    moved: int = 0
    """Messages that arrived at their target."""
    on_the_way: int = 0
    """Messages that are removed here and have not arrived yet."""
    left: int = 0
    """Messages that are not checked yet."""
    skipped: int = 0
    """Messages that stay because they are not from `origin_queue`, or have no target."""
    failed: int = 0
    """Messages that their target refused, and that are in this queue again."""
    destination: bytes | None = None
    """Topic id; nil for each message's source."""
    messages_per_s: int | None = None
    """Maximum messages a second; nil for no limit."""
    origin_queue: str | None = None
    """Filter: only messages from this queue."""
    reason: str = ""
    """Reason of the failure or cancellation."""
    error: ErrorDetail | None = None
    number: int = 0
    """Number among all redrives of the partition, from 1 on; 0 of brokers before version 2."""
    redrive_id: bytes = b""
    """Id that the client chose, the same in all partitions; empty for none."""
    note: str = ""
    """Text of the client."""


class DescribeRedriveReply(msgspec.Struct, frozen=True, array_like=True):
    """The redrives, in the order of the request."""

    redrives: list[RedriveDescription]
    now_ms: int
    """Time of the broker, the reference of `started_ms`."""
    earlier: list[RedriveDescription] = []
    """The redrives before, of all partitions; none unless the request asks for them."""
