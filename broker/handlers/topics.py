"""Creating, describing, altering and deleting topics, and deleting their oldest records."""

from typing import final

import trio

from broker.config import BrokerConfig
from broker.flusher import Flusher
from broker.partitions import Partitions
from coordinator.catalog import AlterTopic, CreateTopic, DeleteTopic, Topic
from coordinator.local import Metadata
from coordinator.topic_config import check_settings, effective_settings, topic_config
from wire.env import Env
from wire.errors import InvalidConfigError
from wire.topics import (
    AlterTopicReply,
    AlterTopicRequest,
    CreateTopicReply,
    CreateTopicRequest,
    DeleteRecordsReply,
    DeleteRecordsRequest,
    DeleteTopicReply,
    DeleteTopicRequest,
    DescribeTopicsReply,
    DescribeTopicsRequest,
    PartitionDescription,
    TopicDescription,
)

_FRAME_OVERHEAD_BYTES = 64 << 10


@final
class TopicsHandler:
    """Administration of topics.

    One change at a time, so that metadata and open logs agree whenever nobody changes them.
    A cancelled change ends the broker with it; the next start carries it out.
    """

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        metadata: Metadata,
        partitions: Partitions,
        flusher: Flusher,
    ) -> None:
        """Change `metadata`, and `partitions` after it."""
        self._env = env
        self._config = config
        self._metadata = metadata
        self._partitions = partitions
        self._flusher = flusher
        self._changing = trio.Lock()

    async def create(self, request: CreateTopicRequest) -> CreateTopicReply:
        """Create a topic; its logs are open when this returns."""
        overrides = {**self._config.topic_defaults, **request.config}
        check_settings(overrides)
        self._check_batch_limit(overrides)
        topic_id = self._env.random.randbytes(16)
        command = CreateTopic(request.name, topic_id, request.partition_count, overrides)
        settings = effective_settings(overrides)
        if request.validate_only:
            self._metadata.catalog.handle(command)
            return CreateTopicReply(b"", request.partition_count, settings)
        async with self._changing:
            await self._metadata.submit(command)
            await self._partitions.create(self._metadata.catalog.topic(request.name))
        self._env.probe(
            "topic_created", topic=request.name, partition_count=request.partition_count
        )
        return CreateTopicReply(topic_id, request.partition_count, settings)

    async def describe(self, request: DescribeTopicsRequest) -> DescribeTopicsReply:
        """Describe topics by name, or all."""
        catalog = self._metadata.catalog
        if request.topics is None:
            topics = catalog.topics
        else:
            topics = [catalog.topic(name) for name in request.topics]
        return DescribeTopicsReply([self._describe(topic) for topic in topics])

    async def alter(self, request: AlterTopicRequest) -> AlterTopicReply:
        """Change settings of a topic."""
        self._check_batch_limit(request.set_config)
        command = AlterTopic(request.name, request.set_config, request.reset_config)
        async with self._changing:
            await self._metadata.submit(command)
            topic = self._metadata.catalog.topic(request.name)
            self._partitions.reconfigure(topic)
        self._env.probe("topic_altered", topic=request.name, config=topic.overrides)
        return AlterTopicReply(effective_settings(topic.overrides))

    async def delete(self, request: DeleteTopicRequest) -> DeleteTopicReply:
        """Delete a topic and its files."""
        async with self._changing:
            topic = self._metadata.catalog.topic(request.name)
            await self._metadata.submit(DeleteTopic(request.name))
            for partition in await self._partitions.delete(topic):
                self._flusher.forget(partition)
        self._env.probe("topic_deleted", topic=request.name)
        return DeleteTopicReply(topic.topic_id)

    async def delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsReply:
        """Raise the log start offset of a partition; durable when this returns."""
        partition = self._partitions.find(request.topic_id, request.partition)
        before_offset = request.before_offset
        if before_offset is None:
            before_offset = partition.high_watermark
        partition.log.delete_records(before_offset, high_watermark=partition.high_watermark)
        await self._flusher.flush_now(partition)
        return DeleteRecordsReply(partition.log.log_start_offset)

    def _check_batch_limit(self, overrides: dict[str, str]) -> None:
        limit = self._config.frame_bytes_max - _FRAME_OVERHEAD_BYTES
        batch_bytes_max = topic_config(
            {name: text for name, text in overrides.items() if name == "batch_bytes_max"}
        ).log.batch_bytes_max
        if batch_bytes_max > limit:
            raise InvalidConfigError(
                f"batch_bytes_max is {batch_bytes_max}, this broker's frame_bytes_max allows"
                f" {limit}"
            )

    def _describe(self, topic: Topic) -> TopicDescription:
        partitions: list[PartitionDescription] = []
        for number in range(topic.partition_count):
            partition = self._partitions.find(topic.topic_id, number)
            log = partition.log
            partitions.append(
                PartitionDescription(
                    number,
                    self._config.node_id,
                    partition.leader.leader_epoch,
                    log.log_start_offset,
                    partition.high_watermark,
                    log.log_end_offset,
                    log.size_bytes,
                    log.status.value,
                )
            )
        return TopicDescription(
            topic.name,
            topic.topic_id,
            effective_settings(topic.overrides),
            sorted(topic.overrides),
            partitions,
        )
