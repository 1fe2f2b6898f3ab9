"""Which partitions there are and how far each goes.

Shell: asks brokers, in one call for all partitions if it can.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, final

from client.metadata import TopicPartition
from spark_connector.brokers import Brokers
from spark_connector.offsets import Slice
from spark_connector.read_options import Selection
from wire import api
from wire.errors import ConfigError, UnknownTopicError
from wire.queue_admin import DescribeQueuesRequest, QueueDescription
from wire.topics import TopicDescription

_NO_QUEUE: Final = "none"
"""As the name of a dead-letter queue."""
_UNKNOWN: Final = "unknown"
"""The status of a partition whose leader did not answer; what is said of its extent is nothing."""


@final
@dataclass(frozen=True, slots=True)
class Extent:
    """How far one partition goes."""

    topic_id: bytes
    start: int
    """The first offset that can be read."""
    end: int
    """Up to where it can be read (exclusive)."""
    size_bytes: int
    is_known: bool = True
    """Whether its leader has said so just now; if not, the numbers mean nothing."""

    def slice(self, at: TopicPartition, start: int, end: int) -> Slice:
        """Return a range of it."""
        return Slice(at.topic, self.topic_id, at.partition, start, end)


Extents = Mapping[TopicPartition, Extent]
"""By partition, in order."""


def look(brokers: Brokers, selection: Selection) -> Extents:
    """Return what a selection reads now; topics that are not there any more are missing.

    Raises:
        ConfigError: An assigned partition is not one of its topic, or a queue has no dead letters.
        UnknownQueueError: There is no such queue.
        TidelogError: Nobody could be asked.
    """
    extents = _extents(_topics(brokers, selection))
    if not selection.partitions:
        return extents
    names = {at.topic for at in extents}
    for at in selection.partitions:
        if at not in extents and at.topic in names:
            count = sum(each.topic == at.topic for each in extents)
            raise ConfigError(
                f"assign: topic {at.topic!r} has {count} partitions, 0 to {count - 1};"
                f" there is no {at.partition}"
            )
    return {at: extents[at] for at in selection.partitions if at in extents}


def missing(selection: Selection, extents: Extents) -> list[str]:
    """Return the topics that are named and were not found."""
    named = {*selection.topics, *(at.topic for at in selection.partitions)}
    return sorted(named - {at.topic for at in extents})


def dead_letter_topic(brokers: Brokers, queue: str) -> str:
    """Return the topic in which dead letters of a queue are.

    Raises:
        UnknownQueueError: There is no such queue.
        ConfigError: It has no dead-letter queue.
    """
    described = _queue(brokers, queue)
    name = described.config.get("dead_letter_queue", _NO_QUEUE)
    if name == _NO_QUEUE:
        raise ConfigError(f"queue {queue!r} has no dead-letter queue")
    return _queue(brokers, name).topic


def _queue(brokers: Brokers, name: str) -> QueueDescription:
    request = DescribeQueuesRequest([name])
    (found,) = brokers.ask_any(api.DESCRIBE_QUEUES, request).queues
    return found


def _topics(brokers: Brokers, selection: Selection) -> list[TopicDescription]:
    if selection.pattern is not None:
        matches = re.compile(selection.pattern).fullmatch
        return [topic for topic in brokers.describe(None) if matches(topic.name)]
    if selection.dead_letters_of is not None:
        return brokers.describe([dead_letter_topic(brokers, selection.dead_letters_of)])
    names = sorted({*selection.topics, *(at.topic for at in selection.partitions)})
    try:
        return brokers.describe(names)
    except UnknownTopicError:
        # One of them is not there, and the answer says nothing of the others.
        return [topic for topic in brokers.describe(None) if topic.name in names]


def _extents(topics: Iterable[TopicDescription]) -> dict[TopicPartition, Extent]:
    found = {
        TopicPartition(topic.name, each.partition): Extent(
            topic.topic_id,
            each.log_start_offset,
            each.high_watermark,
            each.size_bytes,
            each.status != _UNKNOWN,
        )
        for topic in topics
        for each in topic.partitions
    }
    return dict(sorted(found.items()))
