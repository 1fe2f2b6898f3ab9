"""When the messages of a queue go, whether somebody has worked on them or not.

Pure: no clock, no I/O.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.cli.output.tables import size_text
from tidelog.cli.output.times import age_text
from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.client.cluster.durations import seconds_of

_UNLIMITED: Final = "unlimited"


def loss_text(queue: DescribedQueue, topic_config: Mapping[str, str]) -> str | None:
    """Return when the oldest message of a queue goes, for people.

    A queue hands out nothing that its topic has deleted, and nothing that is older than its own
    `retention_ms`: what comes first counts. `None` if it stays, or there is none.
    """
    counts = queue.counts
    if counts is None:
        return None
    parts: list[str] = []
    if counts.oldest_goes_in_ms is not None:
        in_ms = counts.oldest_goes_in_ms
        when = f"in {age_text(in_ms)}" if in_ms > 0 else "at any moment"
        parts.append(f"{when} ({_age_reason(queue, topic_config)})")
    if counts.oldest_goes_in_bytes is not None:
        size = topic_config.get("retention_bytes", _UNLIMITED)
        limit = "" if size == _UNLIMITED else f" of {size}"
        parts.append(
            f"{_after(counts.oldest_goes_in_bytes)} in a partition of topic {queue.topic}"
            f" (retention_bytes{limit})"
        )
    if counts.oldest_goes_in_disk_bytes is not None:
        parts.append(
            f"{_after(counts.oldest_goes_in_disk_bytes)} in all topics of a broker"
            " (log_retention_disk_bytes)"
        )
    return ", or ".join(parts) or None


def _after(size_bytes: int) -> str:
    return f"after {size_text(size_bytes)} more"


def _age_reason(queue: DescribedQueue, topic_config: Mapping[str, str]) -> str:
    by_queue, by_topic = _kept_ms(queue.config), _kept_ms(topic_config)
    if by_topic is not None and (by_queue is None or by_topic < by_queue):
        return f"topic {queue.topic} keeps records for {topic_config['retention_ms']}"
    return f"the queue keeps messages for {queue.config['retention_ms']}"


def _kept_ms(config: Mapping[str, str]) -> int | None:
    text = config.get("retention_ms", _UNLIMITED)
    return None if text == _UNLIMITED else round(seconds_of(text) * 1000)
