"""Creation of many queues, in requests of up to a hundred.

Shell: sends requests to any broker, and repeats them while that may help.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from tidelog.client.admin import queues
from tidelog.client.admin.queues import (
    QueueToCreate,
    Setting,
    creation_of,
    settings_as_text,
    start_offsets,
)
from tidelog.client.admin.topics import Setting as TopicSetting
from tidelog.client.admin.topics import as_text
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.list_offsets import OffsetSpec
from tidelog.wire.errors import (
    BrokerError,
    InvalidConfigError,
    TidelogError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedVersionError,
    from_wire,
)
from tidelog.wire.messages.division import divided
from tidelog.wire.messages.metadata import MetadataRequest, TopicMetadata
from tidelog.wire.messages.queue_admin import (
    QUEUES_CREATED_MAX,
    CreateQueueReply,
    CreateQueueRequest,
    CreateQueuesRequest,
    QueueCreated,
)
from tidelog.wire.protocol import api

_ATTEMPTS: Final = 5
"""Maximum attempts while topics are created or deleted during the creation of their queues."""
_REQUEST_BYTES: Final = 512 << 10
"""Approximate maximum size of one request."""


@final
@dataclass(frozen=True, slots=True)
class NewQueue:
    """A queue that `create_queues` creates; its fields are the arguments of `create_queue`."""

    name: str
    """1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'."""
    topic: str | None = None
    """Topic with the records that are the queue's messages; `None` for that of its own name."""
    partitions: int | None = None
    """Number of partitions of a topic that is created; `None` for 1."""
    start: OffsetSpec = "earliest"
    """`"earliest"`, `"latest"`, or Unix milliseconds: where in the topic the queue begins."""
    fifo: bool = False
    """Whether messages with the same key are delivered in order, one at a time."""
    topic_config: Mapping[str, TopicSetting] = field(default_factory=dict[str, TopicSetting])
    """Settings of a topic that is created."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Free names and values, together at most 65,536 bytes in UTF-8."""
    settings: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    """Settings of the queue, such as `{"visibility_timeout": 30}` (seconds)."""
    new_topic: bool = False
    """Whether the topic must be created with the queue: one that exists is an error."""


@final
@dataclass(frozen=True, slots=True)
class QueueCreation:
    """The result of the creation of one of many queues."""

    name: str
    """Name of the queue."""
    error: TidelogError | None = None
    """Why the queue was not created; `None` if it exists now."""


async def create_queue(cluster: ClusterClient, queue: NewQueue) -> CreateQueueReply:
    """See `Admin.create_queue`."""
    return await queues.create_queue(cluster, _to_create(queue))


async def create_queues(
    cluster: ClusterClient, wanted: Iterable[NewQueue | str]
) -> list[QueueCreation]:
    """See `Admin.create_queues`."""
    done: list[QueueCreation] = []
    given = [NewQueue(each) if isinstance(each, str) else each for each in wanted]
    for part in divided(given, QUEUES_CREATED_MAX):
        done += await _Part(cluster, part).create()
    return done


@final
class _Part:
    """Queues of one request."""

    def __init__(self, cluster: ClusterClient, given: Sequence[NewQueue]) -> None:
        self._cluster = cluster
        self._queues = given
        self._wanted: dict[int, QueueToCreate] = {}
        """Queues without a final result, by their place in the list."""
        self._errors: dict[int, TidelogError] = {}
        """Errors of queues whose creation has failed or will be repeated, by place."""

    async def create(self) -> list[QueueCreation]:
        """Create the queues; return their results in their order."""
        for place, queue in enumerate(self._queues):
            try:
                self._wanted[place] = _to_create(queue)
            except InvalidConfigError as error:
                self._errors[place] = error
        for _ in range(_ATTEMPTS):
            if not self._wanted:
                break
            await self._attempt()
        return [
            QueueCreation(queue.name, self._errors.get(place))
            for place, queue in enumerate(self._queues)
        ]

    async def _attempt(self) -> None:
        """Create what is wanted; what remains wanted met a topic that changed meanwhile."""
        topics = await self._topics()
        requests: dict[int, CreateQueueRequest] = {}
        for place, queue in list(self._wanted.items()):
            topic = None if queue.has_new_topic else topics[queue.topic]
            try:
                if isinstance(topic, BrokerError):
                    raise topic
                starts = await start_offsets(self._cluster, queue, topic)
            except UnknownTopicError as error:
                self._errors[place] = error
            except TidelogError as error:
                self._failed(place, error)
            else:
                requests[place] = creation_of(queue, topic, starts)
        try:
            await self._cluster.retry(lambda: self._send(requests), is_repeatable=True)
        except UnsupportedVersionError:
            await self._create_each()
        except TidelogError as error:
            if not all(place in self._errors for place in requests):
                raise
            for place in requests:
                self._failed(place, self._errors.get(place, error))

    async def _topics(self) -> dict[str, TopicMetadata | BrokerError | None]:
        """Return the current metadata of the topics; `None` where there is none."""
        found: dict[str, TopicMetadata | BrokerError | None] = {}
        for names in divided(list({queue.topic: None for queue in self._wanted.values()})):
            reply = await self._cluster.call_any(
                api.METADATA, MetadataRequest(names), is_repeatable=True
            )
            self._cluster.metadata.apply(reply)
            for name, topic in zip(names, reply.topics, strict=True):
                error = None if topic.error is None else from_wire(topic.error)
                if error is None:
                    found[name] = topic
                else:
                    found[name] = None if isinstance(error, UnknownTopicError) else error
        return found

    async def _send(self, requests: dict[int, CreateQueueRequest]) -> None:
        """Send the requests once; those with a result that is final leave `requests`.

        Raises:
            BrokerError: A result may be another one if the request is repeated.
        """
        connection = await self._cluster.any_connection()
        connection.version_of(api.CREATE_QUEUES)
        passing: BrokerError | None = None
        for places in list(_divided(requests)):
            reply = await self._cluster.call_once(
                connection,
                api.CREATE_QUEUES,
                CreateQueuesRequest([requests[place] for place in places]),
            )
            for place, result in zip(places, reply.results, strict=True):
                error = self._take(place, requests[place], result)
                if error is None:
                    del requests[place]
                else:
                    passing = error
        if passing is not None:
            raise passing

    def _take(
        self, place: int, request: CreateQueueRequest, result: QueueCreated
    ) -> BrokerError | None:
        """Take the result of a queue; return its error if the request may be repeated."""
        if result.error is None:
            self._wanted.pop(place, None)
            self._errors.pop(place, None)
            return None
        error = from_wire(result.error)
        self._errors[place] = error
        if error.is_retriable:
            return error
        # A topic that was created or deleted meanwhile is looked up again.
        has_new_topic = self._wanted[place].has_new_topic
        has_changed = (isinstance(error, TopicExistsError) and not has_new_topic) or (
            isinstance(error, UnknownTopicError) and request.topic_id is not None
        )
        if not has_changed:
            self._failed(place, error)
        return None

    def _failed(self, place: int, error: TidelogError) -> None:
        self._wanted.pop(place, None)
        self._errors[place] = error

    async def _create_each(self) -> None:
        """Create the queues one by one: the broker is of an earlier version."""
        for place, queue in list(self._wanted.items()):
            try:
                await queues.create_queue(self._cluster, queue)
            except BrokerError as error:
                self._failed(place, error)
            else:
                self._wanted.pop(place)
                self._errors.pop(place, None)


def _to_create(queue: NewQueue) -> QueueToCreate:
    return QueueToCreate(
        queue.name,
        queue.topic or queue.name,
        queue.start,
        queue.fifo,
        settings_as_text(queue.settings),
        queue.partitions,
        as_text(queue.topic_config),
        queue.labels,
        queue.new_topic,
    )


def _divided(requests: Mapping[int, CreateQueueRequest]) -> Iterator[list[int]]:
    """Yield the places of each request; long lists of offsets and many settings make a size."""
    places: list[int] = []
    size = 0
    for place, request in requests.items():
        texts = [request.name, request.topic]
        for settings in (request.config, request.topic_config, request.labels):
            texts += [*settings.keys(), *settings.values()]
        added = 9 * len(request.start_offsets) + sum(map(len, texts))
        if places and size + added > _REQUEST_BYTES:
            yield places
            places, size = [], 0
        places.append(place)
        size += added
    if places:
        yield places
