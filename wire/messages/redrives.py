"""Messages about redrives: how far they are.

Pure: declarations. What begins and ends a redrive is in `wire.messages.queues`.
"""

from enum import IntEnum

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import Listed


class RedriveStatus(IntEnum):
    """How far a redrive is."""

    RUNNING = 0
    COMPLETED = 1
    """It has looked at all messages; some may be on their way."""
    CANCELLED = 2
    """What was already taken out is moved nevertheless."""
    FAILED = 3


class DescribeRedriveRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask how far the redrive of partitions is that this broker leads."""

    queue_id: bytes
    """Of the dead-letter queue."""
    partitions: Listed[int]


class RedriveDescription(msgspec.Struct, frozen=True, array_like=True):
    """The redrive of one partition that runs, or ran last."""

    partition: int
    status: int | None = None
    """A `RedriveStatus`; nil if there never was one."""
    started_ms: int = 0
    """Unix milliseconds, by the clock of the broker that began."""
    ended_ms: int | None = None
    """When it had looked at all, or was cancelled; nil while it runs."""
    to_move: int = 0
    """Messages that were there when it began."""
    moved: int = 0
    """Messages that are where they were to go."""
    on_the_way: int = 0
    """Messages that it has taken out, and that are not there yet."""
    left: int = 0
    """Messages that it has not looked at."""
    skipped: int = 0
    """Messages that stay because they are not from `origin_queue`, or have no place to go to."""
    failed: int = 0
    """Messages that were refused where they were to go, and are in this queue again."""
    destination: bytes | None = None
    """Topic id; nil for where each message came from."""
    messages_per_s: int | None = None
    """At most so many; nil for as fast as it goes."""
    origin_queue: str | None = None
    """Only messages from this queue."""
    reason: str = ""
    """Why it failed, or was cancelled."""
    error: ErrorDetail | None = None


class DescribeRedriveReply(msgspec.Struct, frozen=True, array_like=True):
    """The redrives, in the order of the request."""

    redrives: list[RedriveDescription]
    now_ms: int
    """The time at the broker, to make something of `started_ms`."""
