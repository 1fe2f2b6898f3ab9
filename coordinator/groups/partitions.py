"""Sets of partitions: in memory as pairs, in records and messages grouped by topic.

Pure: no clock, no I/O.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.groups import TopicPartitions

Partition = tuple[bytes, int]
"""Topic id and number."""

NAMED_MAX: Final = 20_000
"""Maximum partitions in one request of a group."""


def pack(partitions: Iterable[Partition]) -> list[TopicPartitions]:
    """Return partitions grouped by topic, both in order, from any order."""
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    return [TopicPartitions(topic_id, numbers) for topic_id, numbers in by_topic.items()]


def unpack(packed: Sequence[TopicPartitions]) -> list[Partition]:
    """Return partitions one by one; the inverse of `pack`."""
    return [(topic.topic_id, number) for topic in packed for number in topic.partitions]


def require_moderate(packed: Iterable[TopicPartitions]) -> None:
    """Check that a request does not name too many partitions to process in one go.

    Raises:
        InvalidRequestError: The request names too many.
    """
    count = sum(len(topic.partitions) for topic in packed)
    if count > NAMED_MAX:
        raise InvalidRequestError(
            f"a request names at most {NAMED_MAX:,} partitions in all, not {count:,}"
        )
