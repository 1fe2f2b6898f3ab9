"""Administration of topics: their settings, their records, their offsets.

Shell: asks brokers, again while that may help.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.list_offsets import OffsetSpec, PartitionOffset, list_offsets
from tidelog.client.cluster.metadata import partition_of
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import NotLeaderError
from tidelog.wire.messages.topic_usage import TopicUsage, TopicUsageRequest
from tidelog.wire.messages.topics import (
    AddPartitionsReply,
    AddPartitionsRequest,
    AlterTopicRequest,
    CreateTopicReply,
    CreateTopicRequest,
    DeleteRecordsReply,
    DeleteRecordsRequest,
    DeleteTopicRequest,
    DescribeTopicsRequest,
    TopicDescription,
)
from tidelog.wire.protocol import api

_PATIENCE_S: Final = 5.0

Setting = str | int | float | bool
"""The value of a topic setting; it travels as text."""


class TopicAdmin:
    """What `Admin` does with topics; it says what becomes of calls that fail."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Use `client.admin`."""
        self._cluster = cluster

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, Setting] | None = None,
        validate_only: bool = False,
        **settings: Setting,
    ) -> CreateTopicReply:
        """Create a topic; it is durable when this returns.

        Args:
            name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'.
            partitions: How many partitions it has.
            replication_factor: Replicas of each; by default as many as the cluster says.
            config: Settings by name, such as `{"retention_ms": 3_600_000}`; for programs.
            validate_only: Say what would happen and change nothing.
            settings: The same as keywords: `create_topic("orders", retention_ms=3_600_000)`.

        Raises:
            TopicExistsError: There is one of this name.
            InvalidTopicError: The name or the number of partitions is not legal.
            InvalidConfigError: A setting is unknown or not legal.
        """
        overrides = as_text({**(config or {}), **settings})
        request = CreateTopicRequest(name, partitions, overrides, validate_only, replication_factor)
        return await self._cluster.call_any(api.CREATE_TOPIC, request, is_repeatable=validate_only)

    async def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return [topic.name for topic in await self.describe_topics()]

    async def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """Return settings and offsets of topics, in the order asked; of all, sorted, by default.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        request = DescribeTopicsRequest(None if names is None else list(names))
        reply = await self._cluster.call_any(api.DESCRIBE_TOPICS, request, is_repeatable=True)
        return reply.topics

    async def alter_topic(
        self,
        name: str,
        *,
        set: Mapping[str, Setting] | None = None,  # noqa: A002  (the word of the command line)
        reset: Iterable[str] = (),
    ) -> dict[str, str]:
        """Set settings of a topic, or put them back to their defaults; return all of them.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidConfigError: A setting is unknown or not legal.
        """
        request = AlterTopicRequest(name, as_text(set or {}), list(reset))
        # Setting the same twice does no harm.
        reply = await self._cluster.call_any(api.ALTER_TOPIC, request, is_repeatable=True)
        return reply.config

    async def add_partitions(
        self, name: str, count: int, *, validate_only: bool = False
    ) -> AddPartitionsReply:
        """Let a topic have more partitions: `count` in all; it never gets fewer again.

        Records stay where they are. Those with a key go to another partition from now on, most of
        them, so that the order of records with one key holds before and after, but not across.
        Producers of this client learn of it at once, as do members of groups; all others within
        `ClientConfig.metadata_max_age`.

        Args:
            name: The topic.
            count: How many partitions it has afterwards.
            validate_only: Say what would happen and change nothing.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidTopicError: It has more already, it cannot have so many, or it has FIFO queues.
        """
        request = AddPartitionsRequest(name, count, validate_only)
        # The second time there is nothing to do.
        reply = await self._cluster.call_any(api.ADD_PARTITIONS, request, is_repeatable=True)
        if not validate_only:
            await self._learn(name, count)
        return reply

    async def _learn(self, name: str, count: int) -> None:
        """Let what this client sends know of partitions, if somebody tells of them in time."""
        with trio.move_on_after(_PATIENCE_S):
            while (known := self._cluster.metadata.topic(name)) and len(known.partitions) < count:
                self._cluster.request_refresh([name])
                await self._cluster.wait_changed()

    async def topic_usage(self, names: Iterable[str] | None = None) -> list[TopicUsage]:
        """Return what the partitions of topics take on disk, and how fast that grows.

        In the order asked; of all topics, sorted, by default. Partitions whose leader does not
        answer are left out.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        request = TopicUsageRequest(None if names is None else list(names))
        reply = await self._cluster.call_any(api.TOPIC_USAGE, request, is_repeatable=True)
        return reply.topics

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all of its records.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        request = DeleteTopicRequest(name)
        await self._cluster.call_any(api.DELETE_TOPIC, request, is_repeatable=False)

    async def delete_records(
        self, topic: str, partition: int, before_offset: int | None
    ) -> DeleteRecordsReply:
        """Make records below `before_offset` unreadable; `None` means all that can be read.

        Raises:
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic does not have the partition.
            OffsetOutOfRangeError: The offset is beyond the end; the error has both bounds.
        """

        async def attempt() -> DeleteRecordsReply:
            known = await self._cluster.topic(topic)
            leader_id = partition_of(known, partition).leader_id
            if leader_id is None:
                raise NotLeaderError(f"{topic}/{partition} has no leader now")
            connection = await self._cluster.connection_to(leader_id)
            request = DeleteRecordsRequest(known.topic_id, partition, before_offset)
            return await self._cluster.call_once(connection, api.DELETE_RECORDS, request)

        # With an offset, the second time changes nothing.
        return await self._cluster.retry(attempt, is_repeatable=before_offset is not None)

    async def list_offsets(
        self, topic: str, at: OffsetSpec, *, partitions: Iterable[int] | None = None
    ) -> dict[int, PartitionOffset]:
        """Return an offset of each partition: `"earliest"`, `"latest"`, or that of a time.

        Args:
            topic: The topic's name.
            at: The first readable record, the end, or the first record of this time (Unix
                milliseconds) or later; the offset is `None` where no record is that young.
            partitions: Which partitions; all by default.

        Raises:
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic does not have a partition that was asked for.
        """
        if partitions is None:
            partitions = range(len((await self._cluster.topic(topic)).partitions))
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        found = await list_offsets(self._cluster, dict.fromkeys(wanted, at))
        return {at.partition: offset for at, offset in found.items()}


def as_text(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return settings as they travel; booleans are `true` and `false`."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }
