"""When the oldest message of a queue goes, whether somebody has worked on it or not.

Pure: no clock, no I/O.
"""

from typing import Final, final

import msgspec

from tidelog.broker.handlers.offsets import OffsetsHandler
from tidelog.broker.maintenance.retention import Retention
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.queue_view import QueueView
from tidelog.logstore.config import LogConfig
from tidelog.logstore.retention.disk_retention import DiskOutlook
from tidelog.logstore.retention.retention import LogFacts
from tidelog.logstore.retention.retention_forecast import outlook_of
from tidelog.wire.env.env import Env

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


_NEVER_MS: Final = 1 << 61


@final
class Losses:
    """Tells of messages how long they stay."""

    def __init__(self, env: Env, retention: Retention, offsets: OffsetsHandler) -> None:
        """Know by `retention` what a broker deletes; `offsets` knows the times of records."""
        self.env = env
        self.retention = retention
        self._offsets = offsets

    async def oldest(self, source: Partition, offset: int) -> OldestMessage | None:
        """Return the first message from an offset on, if there is one.

        Raises:
            CorruptRecordError: It is damaged.
            LogOfflineError: The disk failed.
        """
        timestamp_ms = await self._offsets.time_at(source, offset)
        return None if timestamp_ms is None else OldestMessage(offset, timestamp_ms)

    def of(self, oldest: OldestMessage, source: Partition, view: QueueView) -> MessageLoss:
        """Return how long a message of a queue stays."""
        now_ms = self.env.clock.now_ms()
        return loss_of(
            oldest,
            source.log.facts(now_ms=now_ms),
            source.log.config,
            queue_retention_ms=view.retention_ms,
            disk=self.retention.disk_outlook(source),
            now_ms=now_ms,
        )

    def is_segment_near(self, source: Partition, *, now_ms: int) -> bool:
        """Return whether the oldest segment of a log goes soon, whoever has read it.

        The one that grows may go by the age of its records as well; that is not looked at.
        """
        return loss_of(
            OldestMessage(source.log.log_start_offset, now_ms),
            source.log.facts(now_ms=now_ms),
            source.log.config,
            queue_retention_ms=None,
            disk=self.retention.disk_outlook(source),
            now_ms=now_ms,
        ).is_soon

    @staticmethod
    def near_at_ms(oldest: OldestMessage, source: Partition, view: QueueView) -> int:
        """Return when a message comes near to going by age; Unix milliseconds."""
        ages = [source.log.config.retention_ms, view.retention_ms]
        return oldest.timestamp_ms + min(
            (age - age // SOON for age in ages if age is not None), default=_NEVER_MS
        )
