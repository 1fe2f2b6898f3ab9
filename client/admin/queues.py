"""Administration of queues.

Shell: sends requests to any broker, and repeats them while that may help.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.client.admin.names import list_names
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.list_offsets import OffsetSpec, list_offsets_at
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    InvalidConfigError,
    TopicExistsError,
    UnknownQueueError,
    UnknownTopicError,
    from_wire,
)
from tidelog.wire.messages.division import divided, divided_names
from tidelog.wire.messages.metadata import MetadataRequest, TopicMetadata
from tidelog.wire.messages.queue_admin import (
    AlterQueueRequest,
    CreateQueueReply,
    CreateQueueRequest,
    DeleteQueueRequest,
    DescribeQueuesRequest,
    QueueDescription,
)
from tidelog.wire.protocol import api

Setting = str | float | Sequence[float] | None
"""Value of a queue setting. Durations are seconds as numbers, or texts such as `5min`.

A text that is only a number means seconds in a setting in seconds, like the number itself.
"""

_DURATIONS: Final = {
    name.removesuffix("_ms"): name
    for name in (
        "alert_age_ms",
        "alert_lag_ms",
        "deduplication_window_ms",
        "delivery_delay_ms",
        "history_retention_ms",
        "receive_message_wait_time_ms",
        "retention_ms",
        "visibility_timeout_ms",
    )
}
"""Settings of queues and groups that are durations, by the names that take seconds."""
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_ATTEMPTS: Final = 5
"""Maximum attempts while the topic is created or deleted during the creation of a queue."""


@dataclass(frozen=True, slots=True)
class QueueToCreate:
    """Arguments of `Admin.create_queue`."""

    name: str
    topic: str
    start: OffsetSpec
    is_fifo: bool
    settings: Mapping[str, str]
    partition_count: int | None = None
    topic_config: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    has_new_topic: bool = False
    """Whether a topic that exists is an error."""


async def create_queue(cluster: ClusterClient, queue: QueueToCreate) -> CreateQueueReply:
    """See `Admin.create_queue`."""
    if queue.has_new_topic:
        return await _create_on(cluster, queue, None)
    for _ in range(_ATTEMPTS - 1):
        topic = await _topic(cluster, queue.topic)
        try:
            return await _create_on(cluster, queue, topic)
        except TopicExistsError:
            continue  # The topic was created meanwhile: look up the start again.
        except UnknownTopicError:
            if topic is None:
                raise
    return await _create_on(cluster, queue, await _topic(cluster, queue.topic))


async def _create_on(
    cluster: ClusterClient, queue: QueueToCreate, topic: TopicMetadata | None
) -> CreateQueueReply:
    request = creation_of(queue, topic, await start_offsets(cluster, queue, topic))
    # An equal queue that exists is no error.
    return await cluster.call_any(
        api.CREATE_QUEUE, request, is_repeatable=True, min_version=2 if queue.labels else 1
    )


async def start_offsets(
    cluster: ClusterClient, queue: QueueToCreate, topic: TopicMetadata | None
) -> list[int]:
    """Return where a queue begins in each partition of its topic; empty without a topic.

    Errors are those of `list_offsets`.
    """
    if topic is None:
        return []
    places = [TopicPartition(queue.topic, each.partition) for each in topic.partitions]
    offsets = await list_offsets_at(cluster, places, queue.start)
    return [offsets[place] for place in places]


def creation_of(
    queue: QueueToCreate, topic: TopicMetadata | None, start_offsets: list[int]
) -> CreateQueueRequest:
    """Return the request for a queue that begins at these offsets of its topic."""
    return CreateQueueRequest(
        queue.name,
        queue.topic,
        None if topic is None else topic.topic_id,
        start_offsets,
        queue.is_fifo,
        dict(queue.settings),
        dict(queue.topic_config),
        queue.partition_count,
        dict(queue.labels),
    )


async def _topic(cluster: ClusterClient, name: str) -> TopicMetadata | None:
    """Return the current metadata of a topic; `None` if there is none."""
    reply = await cluster.call_any(api.METADATA, MetadataRequest([name]), is_repeatable=True)
    cluster.metadata.apply(reply)
    (topic,) = reply.topics
    if topic.error is None:
        return topic
    error = from_wire(topic.error)
    if isinstance(error, UnknownTopicError):
        return None
    raise error


async def describe_queues(
    cluster: ClusterClient, names: Iterable[str] | None
) -> list[QueueDescription]:
    """See `Admin.describe_queues`."""
    found: list[QueueDescription] = []
    if names is None:
        # In parts: a reply about all of very many queues would not fit.
        for listed in divided(await list_names(cluster, api.LIST_QUEUES)):
            found += await describe_existing_queues(cluster, listed)
        return found
    for part in divided_names(names):
        request = DescribeQueuesRequest(part)
        found += (await cluster.call_any(api.DESCRIBE_QUEUES, request, is_repeatable=True)).queues
    return found


async def describe_existing_queues(
    cluster: ClusterClient, names: Sequence[str]
) -> list[QueueDescription]:
    """Return the queues of these names; those that are deleted meanwhile are left out."""
    if not names:
        return []
    try:
        return await describe_queues(cluster, names)
    except UnknownQueueError:
        if len(names) == 1:
            return []
        half = len(names) // 2
        first = await describe_existing_queues(cluster, names[:half])
        return first + await describe_existing_queues(cluster, names[half:])


async def alter_queue(cluster: ClusterClient, request: AlterQueueRequest) -> dict[str, str]:
    """See `Admin.alter_queue`."""
    has_labels = bool(request.set_labels or request.remove_labels)
    reply = await cluster.call_any(
        api.ALTER_QUEUE, request, is_repeatable=True, min_version=2 if has_labels else 1
    )
    return reply.config


async def delete_queue(
    cluster: ClusterClient, name: str, *, with_topic: bool, detach_sources: bool
) -> None:
    """See `Admin.delete_queue`."""
    request = DeleteQueueRequest(name, with_topic, detach_sources)
    await cluster.call_any(api.DELETE_QUEUE, request, is_repeatable=False)


def name_of_setting(name: str) -> str:
    """Return the name of a setting in requests."""
    return _DURATIONS.get(name, name)


def settings_as_text(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return settings as text for a request: seconds become milliseconds; `None` is left out.

    Raises:
        InvalidConfigError: A setting is given twice.
    """
    texts: dict[str, str] = {}
    for name, value in settings.items():
        if value is None:
            continue
        travels_as = name_of_setting(name)
        if travels_as in texts:
            raise InvalidConfigError(f"{travels_as} is given twice, once in seconds")
        texts[travels_as] = _as_text(name, value)
    return texts


def _as_text(name: str, value: str | float | Sequence[float]) -> str:
    if isinstance(value, str):
        # Brokers, which know no seconds, would read milliseconds.
        if name in _DURATIONS and _NUMBER.fullmatch(value.strip()):
            return _as_text(name, float(value))
        return value
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (int, float)):
        return f"{round(value * 1000)}ms" if name in _DURATIONS else str(value)
    if name == "retry_backoff":
        return ",".join(f"{round(delay * 1000)}ms" for delay in value)
    return ",".join(map(str, value))
