"""Collector of the metrics of single partitions, for readers that name a topic."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

import trio

from tidelog.broker.collectors.replica_walk import replica_lag
from tidelog.broker.metrics import catalog
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.coordinator.groups.pattern import TopicPattern
from tidelog.wire.metrics.metric import Family, Labels, Metric, Sample

_AT_ONCE: Final = 200
"""Partitions that are read before other tasks run."""


def _in_sync(partition: Partition) -> int:
    leader = partition.leader
    return 0 if leader is None else len(leader.replicas.in_sync_replicas)


def _lag(partition: Partition) -> int:
    leader = partition.leader
    return 0 if leader is None else replica_lag(leader, partition.log.log_end_offset)


_ALL: Final[Sequence[tuple[Metric, Callable[[Partition], int]]]] = (
    (catalog.PARTITION_LEADER, lambda each: int(each.leader is not None)),
    (catalog.PARTITION_START_OFFSET, lambda each: each.log.log_start_offset),
    (catalog.PARTITION_HIGH_WATERMARK, lambda each: each.high_watermark),
    (catalog.PARTITION_END_OFFSET, lambda each: each.log.log_end_offset),
    (catalog.PARTITION_BYTES, lambda each: each.log.size_bytes),
)
_OF_LEADERS: Final[Sequence[tuple[Metric, Callable[[Partition], int]]]] = (
    (catalog.PARTITION_ISR, _in_sync),
    (catalog.PARTITION_LAG, _lag),
    (catalog.PARTITION_RECEIVED_BYTES, lambda each: each.traffic.received_bytes),
    (catalog.PARTITION_RECEIVED_RECORDS, lambda each: each.traffic.received_records),
    (catalog.PARTITION_SENT_BYTES, lambda each: each.traffic.sent_bytes),
)


def _sample(value: Callable[[Partition], int], labelled: tuple[Labels, Partition]) -> Sample:
    labels, partition = labelled
    return labels, value(partition)


def _is_led(labelled: tuple[Labels, Partition]) -> bool:
    return labelled[1].leader is not None


@final
class PartitionCollector:
    """Reads the replicas of a broker."""

    def __init__(self, replicas: ReplicaManager) -> None:
        """Read `replicas`."""
        self._replicas = replicas

    async def families(self, topics: TopicPattern) -> list[Family]:
        """Return the metrics of the partitions of some topics."""
        shown: list[tuple[Labels, Partition]] = []
        await self._open_idle(topics)
        for number, partition in enumerate(self._replicas.all()):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            is_of_topic = not partition.queue_name and not partition.is_staging
            if is_of_topic and topics.matches(partition.topic):
                labels = catalog.PARTITION_LEADER.labelled(partition.topic, str(partition.number))
                shown.append((labels, partition))
        # The values are read when they are written, chunk by chunk.
        return [
            *(Family(metric, map(partial(_sample, value), shown)) for metric, value in _ALL),
            *(
                Family(metric, map(partial(_sample, value), filter(_is_led, shown)))
                for metric, value in _OF_LEADERS
            ),
        ]

    async def _open_idle(self, topics: TopicPattern) -> None:
        """Open the closed replicas of these topics: a reader that names a topic uses it."""
        for number, topic in enumerate(self._replicas.idle_topics()):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if not topic.is_internal and topics.matches(topic.name):
                for place in range(topic.partition_count):
                    self._replicas.replica(topic.topic_id, place)
                await trio.lowlevel.checkpoint()
