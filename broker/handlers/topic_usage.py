"""Handler of TOPIC_USAGE: the disk usage of partitions, which each leader reports of its own."""

from contextlib import suppress
from typing import Final, final

import trio

from tidelog.broker.partitions.offset_search import OffsetSearch
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.node import ClusterNode
from tidelog.logstore.compaction.cleaner_run import LogToClean
from tidelog.logstore.retention.ingest_rate import ingest_rate_of
from tidelog.wire.env.env import Env
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.topic_usage import (
    PartitionUsage,
    TopicUsage,
    TopicUsageReply,
    TopicUsageRequest,
)
from tidelog.wire.protocol import api

_PEER_TIMEOUT_S: Final = 2.0
_PARTITIONS_AT_ONCE: Final = 50
"""Partitions that are measured before other tasks run."""


@final
class TopicUsageHandler:
    """Answers for the partitions led here, and asks the leaders of the others."""

    def __init__(
        self, env: Env, cluster: ClusterNode, partitions: ReplicaManager, *, search: OffsetSearch
    ) -> None:
        """Take leaders from `cluster`, and times of records from `search`."""
        self._env = env
        self._cluster = cluster
        self._partitions = partitions
        self._search = search

    async def answer(self, request: TopicUsageRequest) -> TopicUsageReply:
        """Return the usage of partitions; those whose leaders do not answer are left out.

        Raises:
            UnknownTopicError: One of the topics does not exist.
        """
        catalog = self._cluster.metadata.state.catalog
        if request.topics is None:
            topics = catalog.record_topics
        else:
            topics = [catalog.topic(name) for name in dict.fromkeys(request.topics)]
        found: dict[tuple[bytes, int], PartitionUsage] = {}
        for topic in topics:
            await self._measure(topic, found)
            await trio.lowlevel.checkpoint()
        if not request.is_local:
            await self._ask_leaders(topics, found)
        usages: list[TopicUsage] = []
        for topic in topics:
            usages.append(self._usage(topic, found))
            await trio.lowlevel.checkpoint()
        return TopicUsageReply(usages)

    def _usage(self, topic: Topic, found: dict[tuple[bytes, int], PartitionUsage]) -> TopicUsage:
        known = self._cluster.metadata.state.partitions(topic.topic_id)
        keys = [(topic.topic_id, number) for number in range(len(known))]
        return TopicUsage(
            topic.name,
            topic.topic_id,
            len(known),
            min((each.replication_factor for each in known), default=0),
            [found[key] for key in keys if key in found],
        )

    async def _measure(self, topic: Topic, found: dict[tuple[bytes, int], PartitionUsage]) -> None:
        """Add the usage of partitions that are led here."""
        for number in range(topic.partition_count):
            key = topic.topic_id, number
            if self._partitions.idle.is_blank(key):
                found[key] = PartitionUsage(
                    number, self._cluster.node_id, 0, 0, 0, 0, None, None, None
                )
                continue
            partition = self._partitions.replica(*key)
            if partition is not None and partition.leader is not None and not partition.is_held:
                found[topic.topic_id, number] = await self._usage_of(partition)
            if number % _PARTITIONS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    async def _usage_of(self, partition: Partition) -> PartitionUsage:
        log = partition.log
        oldest_ms: int | None = None
        with suppress(BrokerError):  # Damage or a failed disk hides only the time.
            oldest_ms = await self._search.time_at(partition, log.log_start_offset)
        now_ms = self._env.clock.now_ms()
        rate = ingest_rate_of(log.summary(now_ms=now_ms), now_ms=now_ms)
        compaction = partition.config.compaction
        if compaction is not None and oldest_ms == 0:
            oldest_ms = None  # The empty batches that compaction leaves have no time.
        return PartitionUsage(
            partition.number,
            self._cluster.node_id,
            log.size_bytes,
            log.segment_count,
            log.log_start_offset,
            partition.high_watermark,
            oldest_ms,
            None if rate is None else rate.bytes_per_day,
            None if rate is None else rate.offsets_per_day,
            None if compaction is None else LogToClean(log, compaction, now_ms=now_ms).dirty_ratio,
        )

    async def _ask_leaders(
        self, topics: list[Topic], found: dict[tuple[bytes, int], PartitionUsage]
    ) -> None:
        wanted: dict[int, dict[str, None]] = {}
        for topic in topics:
            for each in self._cluster.metadata.state.partitions(topic.topic_id):
                if each.leader is not None and each.leader != self._cluster.node_id:
                    wanted.setdefault(each.leader, {})[topic.name] = None

        def take(node_id: int, reply: TopicUsageReply) -> None:
            del node_id
            for topic in reply.topics:
                for each in topic.partitions:
                    found[topic.topic_id, each.partition] = each

        await self._cluster.peers.ask_each(
            wanted,
            api.TOPIC_USAGE,
            lambda names: TopicUsageRequest(names, is_local=True),
            take=take,
            timeout_s=_PEER_TIMEOUT_S,
        )
