"""Creating, describing, altering and deleting topics, and deleting their oldest records."""

from contextlib import suppress
from typing import final

import trio

from broker.config import BrokerConfig
from broker.flusher import Flusher
from broker.partition import Partition
from broker.partitions import Partitions
from coordinator.catalog import AlterTopic, CreateTopic, DeleteTopic, Topic
from coordinator.local import Metadata
from coordinator.topic_config import check_settings, effective_settings, topic_config
from logstore.disk import DISK_FULL_ERRNOS
from logstore.log import LogStatus
from wire.env import Env
from wire.errors import (
    BrokerError,
    DiskFullError,
    InvalidConfigError,
    LogOfflineError,
    UnknownTopicError,
)
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
            topic = self._begun(command)
            if topic is None:
                await self._metadata.submit(command)
                topic = self._metadata.catalog.topic(request.name)
            await self._make_logs(topic)
        return CreateTopicReply(topic.topic_id, topic.partition_count, settings)

    async def make_missing_logs(self) -> None:
        """Try again to make the logs of topics for which there was no room."""
        if all(self._is_open(topic) for topic in self._metadata.catalog.topics):
            return
        async with self._changing:
            for topic in self._metadata.catalog.topics:
                if not self._is_open(topic):
                    # The disk is still full; whoever created it was told.
                    with suppress(BrokerError):
                        await self._make_logs(topic)

    def _is_open(self, topic: Topic) -> bool:
        return self._partitions.of_topic(topic.topic_id) is not None

    def _begun(self, command: CreateTopic) -> Topic | None:
        """Return the topic if this very command was carried out before, all but its logs."""
        try:
            topic = self._metadata.catalog.topic(command.name)
        except UnknownTopicError:
            return None
        asked = (command.partition_count, command.overrides)
        is_same = (topic.partition_count, topic.overrides) == asked
        return topic if is_same and not self._is_open(topic) else None

    async def _make_logs(self, topic: Topic) -> None:
        """Make and open the logs of a topic.

        Raises:
            DiskFullError: They are made when there is room, or when the request comes again.
            LogOfflineError: The disk failed.
        """
        try:
            await self._partitions.create(topic)
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS:
                raise DiskFullError(
                    f"the disk is full; topic {topic.name!r} comes into being when there is room"
                ) from error
            raise LogOfflineError(
                f"the disk failed while topic {topic.name!r} was made: {error}"
            ) from error
        self._env.probe("topic_created", topic=topic.name, partition_count=topic.partition_count)

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
        command = self._alteration(request)
        async with self._changing:
            await self._metadata.submit(command)
            topic = self._metadata.catalog.topic(request.name)
            for partition in self._partitions.reconfigure(topic):
                # What was only promised to be in memory is to be on disk now.
                self._flusher.appended(partition)
        self._env.probe("topic_altered", topic=request.name, config=topic.overrides)
        return AlterTopicReply(effective_settings(topic.overrides))

    def _alteration(self, request: AlterTopicRequest) -> AlterTopic:
        """Return the command; what is reset becomes what new topics get from this broker."""
        defaults = self._config.topic_defaults
        both = request.set_config.keys() & set(request.reset_config)
        if both:
            names = ", ".join(sorted(both))
            raise InvalidConfigError(f"{names} cannot be set and reset at the same time")
        given = {name: defaults[name] for name in request.reset_config if name in defaults}
        reset = [name for name in request.reset_config if name not in defaults]
        return AlterTopic(request.name, {**request.set_config, **given}, reset)

    async def delete(self, request: DeleteTopicRequest) -> DeleteTopicReply:
        """Delete a topic and its files."""
        async with self._changing:
            topic = self._metadata.catalog.topic(request.name)
            await self._metadata.submit(DeleteTopic(request.name))
            for partition in self._partitions.close(topic):
                await self._flusher.forget(partition)
            try:
                await self._partitions.remove_files(topic)
            except OSError as error:
                # The topic is gone all the same.
                self._env.probe(
                    "files_left_over", severity="warning", topic=topic.name, reason=str(error)
                )
        self._env.probe("topic_deleted", topic=request.name)
        return DeleteTopicReply(topic.topic_id)

    async def delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsReply:
        """Raise the log start offset of a partition; durable when this returns."""
        partition = self._partitions.find(request.topic_id, request.partition)
        before_offset = request.before_offset
        if before_offset is None:
            before_offset = partition.high_watermark
        partition.log.delete_records(before_offset, high_watermark=partition.high_watermark)
        try:
            await self._flusher.flush_now(partition)
        except LogOfflineError:
            self._partitions.find(request.topic_id, request.partition)  # Deleted meanwhile?
            raise
        if partition.log.is_checkpoint_due:
            raise DiskFullError(
                "the disk is full; the records are deleted, but a restart may bring them back"
            )
        return DeleteRecordsReply(partition.log.log_start_offset)

    def _check_batch_limit(self, overrides: dict[str, str]) -> None:
        limit = self._config.batch_bytes_limit
        batch_bytes_max = topic_config(
            {name: text for name, text in overrides.items() if name == "batch_bytes_max"}
        ).log.batch_bytes_max
        if batch_bytes_max > limit:
            raise InvalidConfigError(
                f"batch_bytes_max is {batch_bytes_max}, this broker's frame_bytes_max allows"
                f" {limit}"
            )

    def _describe(self, topic: Topic) -> TopicDescription:
        opened = self._partitions.of_topic(topic.topic_id)
        if opened is None:
            partitions = [
                PartitionDescription(number, None, 0, 0, 0, 0, 0, LogStatus.OFFLINE.value)
                for number in range(topic.partition_count)
            ]
        else:
            partitions = [self._describe_partition(partition) for partition in opened]
        return TopicDescription(
            topic.name,
            topic.topic_id,
            effective_settings(topic.overrides),
            sorted(topic.overrides),
            partitions,
        )

    def _describe_partition(self, partition: Partition) -> PartitionDescription:
        log = partition.log
        return PartitionDescription(
            partition.number,
            self._config.node_id,
            partition.leader.leader_epoch,
            log.log_start_offset,
            partition.high_watermark,
            log.log_end_offset,
            log.size_bytes,
            log.status.value,
        )
