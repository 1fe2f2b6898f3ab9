"""Administration of topics, where a call is more than its request."""

from collections.abc import Iterable, Mapping
from typing import Final

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.metadata import partition_of
from tidelog.wire.errors import NotLeaderError
from tidelog.wire.messages.division import divided_names
from tidelog.wire.messages.topic_usage import TopicUsage, TopicUsageRequest
from tidelog.wire.messages.topics import (
    AddPartitionsReply,
    AddPartitionsRequest,
    AlterTopicRequest,
    DeleteRecordsReply,
    DeleteRecordsRequest,
    DescribeTopicsRequest,
    TopicDescription,
)
from tidelog.wire.protocol import api

Setting = str | int | float | bool
"""Value of a topic setting; requests carry it as text."""

_PATIENCE_S: Final = 5.0


def as_text(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return settings as text for a request; booleans are `true` and `false`."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


async def describe_topics(
    cluster: ClusterClient, names: Iterable[str] | None
) -> list[TopicDescription]:
    """See `Admin.describe_topics`."""
    found: list[TopicDescription] = []
    for part in divided_names(names):
        request = DescribeTopicsRequest(part)
        reply = await cluster.call_any(api.DESCRIBE_TOPICS, request, is_repeatable=True)
        found += reply.topics
    return found


async def topic_usage(cluster: ClusterClient, names: Iterable[str] | None) -> list[TopicUsage]:
    """See `Admin.topic_usage`."""
    found: list[TopicUsage] = []
    for part in divided_names(names):
        request = TopicUsageRequest(part)
        reply = await cluster.call_any(api.TOPIC_USAGE, request, is_repeatable=True)
        found += reply.topics
    return found


async def alter_topic(cluster: ClusterClient, request: AlterTopicRequest) -> dict[str, str]:
    """See `Admin.alter_topic`."""
    has_labels = bool(request.set_labels or request.remove_labels)
    # Repeating the same settings does no harm.
    reply = await cluster.call_any(
        api.ALTER_TOPIC, request, is_repeatable=True, min_version=2 if has_labels else 1
    )
    return reply.config


async def add_partitions(
    cluster: ClusterClient, request: AddPartitionsRequest
) -> AddPartitionsReply:
    """See `Admin.add_partitions`."""
    # A repeated request changes nothing.
    reply = await cluster.call_any(api.ADD_PARTITIONS, request, is_repeatable=True)
    if not request.validate_only:
        await _learn_partitions(cluster, request.name, request.partition_count)
    return reply


async def _learn_partitions(cluster: ClusterClient, name: str, count: int) -> None:
    """Wait until the metadata of this client have the new partitions, for a few seconds."""
    with trio.move_on_after(_PATIENCE_S):
        while (known := cluster.metadata.topic(name)) and len(known.partitions) < count:
            cluster.request_refresh([name])
            await cluster.wait_changed()


async def delete_records(
    cluster: ClusterClient, topic: str, partition: int, *, before_offset: int | None
) -> DeleteRecordsReply:
    """See `Admin.delete_records`."""

    async def attempt() -> DeleteRecordsReply:
        known = await cluster.topic(topic)
        leader_id = partition_of(known, partition).leader_id
        if leader_id is None:
            raise NotLeaderError(f"{topic}/{partition} has no leader now")
        connection = await cluster.connection_to(leader_id)
        request = DeleteRecordsRequest(known.topic_id, partition, before_offset)
        return await cluster.call_once(connection, api.DELETE_RECORDS, request)

    # With an offset, a repeated request changes nothing.
    return await cluster.retry(attempt, is_repeatable=before_offset is not None)
