"""When messages of queues go: what is to be known for that of a broker.

Shell without tasks.
"""

from typing import Final, final

from broker.handlers.offsets import OffsetsHandler
from broker.partition import Partition
from broker.queues.facts import QueueFacts
from broker.queues.loss import SOON, MessageLoss, OldestMessage, loss_of
from broker.retention import Retention
from wire.env import Env

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

    def of(self, oldest: OldestMessage, source: Partition, facts: QueueFacts) -> MessageLoss:
        """Return how long a message of a queue stays."""
        now_ms = self.env.clock.now_ms()
        return loss_of(
            oldest,
            source.log.facts(now_ms=now_ms),
            source.log.config,
            queue_retention_ms=facts.retention_ms,
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
    def near_at_ms(oldest: OldestMessage, source: Partition, facts: QueueFacts) -> int:
        """Return when a message comes near to going by age; Unix milliseconds."""
        ages = [source.log.config.retention_ms, facts.retention_ms]
        return oldest.timestamp_ms + min(
            (age - age // SOON for age in ages if age is not None), default=_NEVER_MS
        )
