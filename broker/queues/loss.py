"""When the oldest message of a queue goes, whether somebody has worked on it or not.

Pure: no clock, no I/O.
"""

from typing import Final

import msgspec

from logstore.config import LogConfig
from logstore.disk_retention import DiskOutlook
from logstore.outlook import outlook_of
from logstore.retention import LogFacts

SOON: Final = 10
"""What is left is less than the limit divided by this."""


class OldestMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that is left, and none before it is."""

    offset: int
    timestamp_ms: int


class MessageLoss(msgspec.Struct, frozen=True, gc=False):
    """What is left until a message goes, at the least, by whatever limits it; `None`: not so."""

    in_ms: int | None = None
    """By age: that of the queue, or that of the topic."""
    in_bytes: int | None = None
    """Of the partition, by its size."""
    in_disk_bytes: int | None = None
    """Of all topics of the broker, by what they take together."""
    is_soon: bool = False
    """Whether less than a tenth is left of one of these limits."""


def loss_of(
    oldest: OldestMessage,
    log: LogFacts,
    config: LogConfig,
    *,
    queue_retention_ms: int | None,
    disk: DiskOutlook | None,
    now_ms: int,
) -> MessageLoss:
    """Return what is left of a message.

    Args:
        oldest: The message.
        log: Where it is.
        config: What limits that.
        queue_retention_ms: For how long the queue hands a message out; `None` for ever.
        disk: What limits all logs together, if anything does, and this one is among them.
        now_ms: Unix milliseconds.
    """
    outlook = outlook_of(
        log, config, oldest.offset, timestamp_ms=oldest.timestamp_ms, now_ms=now_ms
    )
    ages: list[tuple[int, int]] = []
    if queue_retention_ms is not None:
        ages.append((oldest.timestamp_ms + queue_retention_ms - now_ms, queue_retention_ms))
    if outlook.goes_at_ms is not None and config.retention_ms is not None:
        ages.append((outlook.goes_at_ms - now_ms, config.retention_ms))
    sizes = [(outlook.bytes_left, config.retention_bytes)]
    in_disk_bytes = None if disk is None else disk.bytes_left(outlook.newest_ms)
    sizes.append((in_disk_bytes, None if disk is None else disk.bytes_max))
    return MessageLoss(
        max(0, min(ages)[0]) if ages else None,
        outlook.bytes_left,
        in_disk_bytes,
        any(
            left is not None and limit is not None and left * SOON < limit
            for left, limit in (*ages, *sizes)
        ),
    )
