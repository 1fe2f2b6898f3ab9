"""When the messages of a queue go, whether somebody has worked on them or not.

Pure: no clock, no I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from client.durations import seconds_of
from client.queue_counting import DescribedQueue
from tidelog.cli.times import age_text

_UNLIMITED: Final = "unlimited"
_SOON: Final = 0.1
"""Of the time for which messages are kept."""


@dataclass(frozen=True, slots=True)
class MessageLoss:
    """What becomes of the oldest message of a queue if nobody deletes it."""

    at_ms: int
    """When it goes, at the earliest; Unix milliseconds."""
    is_soon: bool
    """Whether nine tenths of its time are over."""
    reason: str
    """Which setting says so, for people."""


def loss_of(
    queue: DescribedQueue, topic_config: Mapping[str, str], *, now_ms: int
) -> MessageLoss | None:
    """Return when the oldest message of a queue goes, `None` if it stays, or there is none.

    A queue hands out nothing that its topic has deleted, and nothing that is older than its own
    `retention_ms`: the shorter one counts. By size a topic may delete it sooner.
    """
    counts = queue.counts
    if counts is None or counts.oldest_timestamp_ms is None:
        return None
    by_queue, by_topic = _kept_ms(queue.config), _kept_ms(topic_config)
    if by_topic is not None and (by_queue is None or by_topic < by_queue):
        kept_ms = by_topic
        reason = f"topic {queue.topic} keeps records for {topic_config['retention_ms']}"
    elif by_queue is not None:
        kept_ms = by_queue
        reason = f"the queue keeps messages for {queue.config['retention_ms']}"
    else:
        return None
    size = topic_config.get("retention_bytes", _UNLIMITED)
    if size != _UNLIMITED:
        reason += f"; sooner if a partition of the topic is larger than {size}"
    at_ms = counts.oldest_timestamp_ms + kept_ms
    return MessageLoss(at_ms, at_ms - now_ms < kept_ms * _SOON, reason)


def loss_text(loss: MessageLoss, *, now_ms: int) -> str:
    """Return the same for people."""
    left_ms = loss.at_ms - now_ms
    when = f"in {age_text(left_ms)}" if left_ms > 0 else "at any moment"
    return f"{when} ({loss.reason})"


def _kept_ms(config: Mapping[str, str]) -> int | None:
    text = config.get("retention_ms", _UNLIMITED)
    return None if text == _UNLIMITED else round(seconds_of(text) * 1000)
