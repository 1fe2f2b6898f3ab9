"""Selected partitions with their start and end offsets.

Shell: asks brokers, in one request for all partitions if possible.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Final, NamedTuple

import msgspec

from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.connection.journals import journal_of
from tidelog.spark_connector.read.offset_ranges import Slice
from tidelog.spark_connector.read.read_options import Selection
from tidelog.wire.errors import ConfigError, WireFormatError
from tidelog.wire.messages.offset_ranges import TopicOffsets
from tidelog.wire.messages.queue_admin import DescribeQueuesRequest, QueueDescription
from tidelog.wire.protocol import api

_NO_QUEUE: Final = "none"
"""Value of `dead_letter_queue` for a queue without one."""
_TOPICS_KEPT: Final = 16
"""Topics in the cache of partition objects."""


class PartitionRange(NamedTuple):
    """Start and end offset of one partition."""

    topic_id: bytes
    start: int
    """Log start offset."""
    end: int
    """High watermark, exclusive."""
    size_bytes: int = 0
    """Bytes on disk; 0 if not requested."""
    is_known: bool = True
    """Whether the leader reported the offsets; if not, they mean nothing."""
    leader_epoch: int | None = None
    """Leader epoch of the last record below `end`, `None` if not known."""

    def slice(self, at: TopicPartition, start: int, end: int) -> Slice:
        """Return a range of this partition."""
        return Slice(at.topic, self.topic_id, at.partition, start, end)


PartitionRanges = Mapping[TopicPartition, PartitionRange]
"""Ranges by partition, in order."""


def look(
    cluster: BlockingClusterClient, selection: Selection, *, with_sizes: bool = False
) -> PartitionRanges:
    """Return the current ranges of a selection; deleted topics are missing.

    Without `with_sizes` all sizes are 0, and the request is faster.

    Raises:
        ConfigError: A topic lacks a selected partition, or a queue has no dead-letter queue.
        UnknownQueueError: The queue does not exist.
        TidelogError: No broker answered.
    """
    ranges = _ranges(_topics(cluster, selection, with_sizes=with_sizes))
    if selection.numbers:
        return _numbered(ranges, selection.numbers)
    if not selection.partitions:
        return ranges
    names = {at.topic for at in ranges}
    for at in selection.partitions:
        if at not in ranges and at.topic in names:
            count = sum(each.topic == at.topic for each in ranges)
            raise ConfigError(
                f"assign: topic {at.topic!r} has {count} partitions, 0 to {count - 1};"
                f" there is no {at.partition}"
            )
    return {at: ranges[at] for at in selection.partitions if at in ranges}


def _numbered(ranges: PartitionRanges, numbers: Sequence[int]) -> PartitionRanges:
    """Return the ranges of the partitions with these numbers; each topic must have all."""
    counts = Counter(at.topic for at in ranges)
    for topic, count in counts.items():
        if numbers[-1] >= count:
            raise ConfigError(
                f"partitions: topic {topic!r} has {count} partitions, 0 to {count - 1};"
                f" there is no {numbers[-1]}"
            )
    wanted = frozenset(numbers)
    return {at: bounds for at, bounds in ranges.items() if at.partition in wanted}


def missing(selection: Selection, ranges: PartitionRanges) -> list[str]:
    """Return the named topics that do not exist."""
    named = {*selection.topics, *(at.topic for at in selection.partitions)}
    if selection.history_of is not None:
        named.add(journal_of(selection.history_of))
    return sorted(named - {at.topic for at in ranges})


def dead_letter_topic(cluster: BlockingClusterClient, queue: str) -> str:
    """Return the topic that holds the dead letters of a queue.

    Raises:
        UnknownQueueError: The queue does not exist.
        ConfigError: The queue has no dead-letter queue.
    """
    described = _queue(cluster, queue)
    name = described.config.get("dead_letter_queue", _NO_QUEUE)
    if name == _NO_QUEUE:
        raise ConfigError(f"queue {queue!r} has no dead-letter queue")
    return _queue(cluster, name).topic


def _queue(cluster: BlockingClusterClient, name: str) -> QueueDescription:
    request = DescribeQueuesRequest([name])
    (found,) = cluster.call_any(api.DESCRIBE_QUEUES, request).queues
    return found


def _topics(
    cluster: BlockingClusterClient, selection: Selection, *, with_sizes: bool
) -> list[TopicOffsets]:
    if selection.history_of is not None:
        journals = cluster.topic_offsets(
            [selection.history_of], with_leader_epochs=True, from_journals=True
        )
        return [msgspec.structs.replace(each, name=journal_of(each.name)) for each in journals]
    if selection.pattern is not None:
        matches = re.compile(selection.pattern).fullmatch
        found = cluster.topic_offsets(None, with_sizes=with_sizes, with_leader_epochs=True)
        return [topic for topic in found if matches(topic.name)]
    if selection.dead_letters_of is not None:
        names = [dead_letter_topic(cluster, selection.dead_letters_of)]
    else:
        names = sorted({*selection.topics, *(at.topic for at in selection.partitions)})
    return cluster.topic_offsets(names, with_sizes=with_sizes, with_leader_epochs=True)


def _ranges(topics: Iterable[TopicOffsets]) -> dict[TopicPartition, PartitionRange]:
    """Return the ranges by partition; topics are sorted by name."""
    found: dict[TopicPartition, PartitionRange] = {}
    for topic in topics:
        count = len(topic.high_watermarks)
        known = [True] * count
        for number in topic.unknown_partitions:
            known[number] = False
        sizes = topic.sizes_bytes or [0] * count
        epochs = topic.leader_epochs or [None] * count  # None of brokers of an earlier version.
        columns = (topic.log_start_offsets, topic.high_watermarks, sizes, known, epochs)
        if any(len(column) != count for column in columns):
            raise WireFormatError(
                f"malformed reply: the offsets of topic {topic.name!r} differ in number"
            )
        # In C instead of a Python loop: a stream runs this several times a second.
        ranges = map(PartitionRange._make, zip(repeat(topic.topic_id), *columns, strict=False))
        found.update(zip(_places(topic.name, count), ranges, strict=True))
    return found


@lru_cache(maxsize=_TOPICS_KEPT)
def _places(topic: str, count: int) -> tuple[TopicPartition, ...]:
    """Return the partitions of a topic, cached, because identical objects compare fast."""
    return tuple(TopicPartition(topic, number) for number in range(count))
