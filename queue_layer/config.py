"""What a queue is set to.

Pure: declarations and checks. Whoever reads settings from texts makes this of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Final, final

from tidelog.wire.errors import InvalidConfigError
from tidelog.wire.messages.queue_journal import Target
from tidelog.wire.messages.queues import VISIBILITY_TIMEOUT_MS_MAX

MINUTE_MS: Final = 60_000
DAY_MS: Final = 24 * 60 * MINUTE_MS
_JITTER_STEPS: Final = 1 << 32


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidConfigError(message)


class ReceiveAcks(Enum):
    """When the reply to a receive goes out."""

    ALL = "all"
    """When the receive is committed: counts are exact, whatever happens to brokers."""
    LEADER = "leader"
    """At once: a leader that is lost may take its last receives with it."""


@final
@dataclass(frozen=True, slots=True)
class FixedBackoff:
    """A list of delays, one for each receive; the last one for all further receives too."""

    delays_ms: Sequence[int]

    def __post_init__(self) -> None:
        _require(len(self.delays_ms) > 0, "a list of retry delays has at least one")
        _require(min(self.delays_ms) >= 0, "a retry delay is not negative")

    def delay_ms(self, receive_count: int, *, lease_id: int, offset: int) -> int:
        """Return how long a message waits that was released after so many receives."""
        del lease_id, offset
        return self.delays_ms[min(max(receive_count, 1), len(self.delays_ms)) - 1]

    @property
    def is_equal_for_all(self) -> bool:
        """Whether messages that were received equally often wait equally long."""
        return True


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """Delays that grow: `base_ms * factor ** (receives - 1)`, at most `cap_ms`.

    Of each a random part up to `jitter` is taken off, so that what failed together does not come
    back together. The part follows from the lease and the offset: whoever decides gets the same.
    """

    base_ms: int
    factor: float = 2.0
    cap_ms: int = VISIBILITY_TIMEOUT_MS_MAX
    jitter: float = 0.2
    """From 0 to 1."""

    def __post_init__(self) -> None:
        _require(self.base_ms >= 0, "the base of a backoff is not negative")
        _require(self.factor >= 1, "a backoff does not shrink: its factor is at least 1")
        _require(self.cap_ms >= self.base_ms, "the cap of a backoff is not below its base")
        _require(0 <= self.jitter <= 1, "the jitter of a backoff is between 0 and 1")

    def delay_ms(self, receive_count: int, *, lease_id: int, offset: int) -> int:
        """Return how long a message waits that was released after so many receives."""
        delay_ms = float(self.base_ms)
        for _ in range(1, receive_count):
            if delay_ms >= self.cap_ms or self.factor == 1:
                break
            delay_ms *= self.factor
        delay_ms = min(delay_ms, self.cap_ms)
        if self.jitter:
            seed = b"%d %d" % (lease_id, offset)
            draw = int.from_bytes(blake2b(seed, digest_size=4).digest(), "big") / _JITTER_STEPS
            delay_ms *= 1 - self.jitter * draw
        return int(delay_ms)

    @property
    def is_equal_for_all(self) -> bool:
        """Whether messages that were received equally often wait equally long."""
        return self.jitter == 0


RetryBackoff = FixedBackoff | ExponentialBackoff
NO_BACKOFF: Final = FixedBackoff((0,))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """Settings of one queue. All may change while it is at work, except `is_fifo`."""

    visibility_timeout_ms: int = 30_000
    """For how long nobody else gets a message that was received; a receive may say otherwise."""
    delivery_delay_ms: int = 0
    """How long each message waits at first. The time stands in what the records say (see
    `QueuePartition.on_records`): whoever reads them adds this."""
    retention_ms: int = 4 * DAY_MS
    """How long messages are kept, whether somebody has received them or not."""
    max_receive_count: int | None = None
    """How often a message is delivered before it is a dead letter; `None`: as often as needed. Of
    no effect without a target for dead letters: then messages are delivered on and on."""
    dead_letter_target: Target | None = None
    """Topic id and partition for the dead letters of this partition."""
    retry_backoff: RetryBackoff = NO_BACKOFF
    """How long a message waits that was released without a delay being said."""
    receive_acks: ReceiveAcks = ReceiveAcks.ALL
    is_fifo: bool = False
    """Groups are in order; receipts count only while their lease lasts."""
    require_latest_receipt: bool = False
    """Only the last receipt of a message settles it. Without it an older one may still delete."""
    max_in_flight: int = 120_000
    """Messages that are in flight (received, not settled) at once, in one partition."""
    priority_weights: Sequence[int] = ()
    """The weight of each priority, the most urgent first; none: there are no priorities."""
    fair_delivery: bool = False
    """Standard queues: groups with many leased messages wait behind those with few."""

    def __post_init__(self) -> None:
        _require(
            0 <= self.visibility_timeout_ms <= VISIBILITY_TIMEOUT_MS_MAX,
            f"a visibility timeout is between 0 and {VISIBILITY_TIMEOUT_MS_MAX} ms",
        )
        _require(self.delivery_delay_ms >= 0, "a delivery delay is not negative")
        _require(self.retention_ms >= MINUTE_MS, "messages are kept for at least a minute")
        _require(
            self.max_receive_count is None or self.max_receive_count >= 1,
            "a message is delivered at least once before it is a dead letter",
        )
        _require(self.max_in_flight >= 1, "at least one message may be in flight")
        _require(
            all(weight >= 1 for weight in self.priority_weights),
            "the weight of a priority is at least 1",
        )
        _require(
            not (self.is_fifo and (self.priority_weights or self.fair_delivery)),
            "a FIFO queue has an order of its own: neither priority_weights nor fair_delivery",
        )
        _require(
            not (self.priority_weights and self.fair_delivery),
            "a queue has either priority_weights or fair_delivery",
        )

    @property
    def deliveries_max(self) -> int | None:
        """After how many receives a message dies, `None` if it does not."""
        return None if self.dead_letter_target is None else self.max_receive_count

    @property
    def is_fenced(self) -> bool:
        """Whether only the last receipt of a message settles it."""
        return self.is_fifo or self.require_latest_receipt
