"""Handlers of queue administration: create, describe, alter and delete."""

from collections.abc import Iterable, Iterator
from typing import Final, final

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.handlers.feature_level import require_labels, require_queue_settings
from tidelog.broker.metadata_applier import MetadataApplier
from tidelog.coordinator.metadata.catalog import RECEIPT_KEY_SIZE, TOPIC_ID_SIZE, Catalog, Topic
from tidelog.coordinator.metadata.commands import (
    AlterQueue,
    CreateQueue,
    CreateQueues,
    DeleteQueue,
    QueueAnswer,
    QueueCommand,
    QueueResult,
    QueueResults,
)
from tidelog.coordinator.metadata.features import CREATE_QUEUES_LEVEL
from tidelog.coordinator.metadata.queue_commands import retained_for_queue
from tidelog.coordinator.metadata.topic_config import topic_config
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.config.queue_config import effective_queue_settings
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    BrokerNotReadyError,
    InvalidConfigError,
    InvalidRequestError,
    RequestTimedOutError,
    UnknownQueueError,
    from_wire,
)
from tidelog.wire.messages.names import ListNamesReply, ListNamesRequest
from tidelog.wire.messages.queue_admin import (
    AlterQueueReply,
    AlterQueueRequest,
    CreateQueueReply,
    CreateQueueRequest,
    CreateQueuesReply,
    CreateQueuesRequest,
    DeleteQueueReply,
    DeleteQueueRequest,
    DescribeQueuesReply,
    DescribeQueuesRequest,
    QueueCreated,
    QueueDescription,
    QueuePartitionDescription,
)
from tidelog.wire.security.principal import ANONYMOUS, Principal

_DECIDE_TIMEOUT_S: Final = 10.0
_PARTITIONS_AT_ONCE: Final = 1_000
"""Partitions of the queues that one step of the controller creates."""


@final
class QueueAdminHandler:
    """Administration of queues.

    On cancellation, a change may be carried out or not.
    """

    def __init__(
        self, env: Env, config: BrokerConfig, cluster: ClusterNode, *, applier: MetadataApplier
    ) -> None:
        """Submit changes of queues to the cluster; `applier` opens and removes their journals."""
        self._env = env
        self._config = config
        self._cluster = cluster
        self._applier = applier

    async def create(
        self, request: CreateQueueRequest, principal: Principal = ANONYMOUS
    ) -> CreateQueueReply:
        """Create a queue of a principal; this broker's logs of it are open when this returns.

        Raises:
            QueueExistsError: Another queue has this name.
            TopicExistsError: Another request created the topic meanwhile.
            UnknownTopicError: The topic was deleted meanwhile, or must not be created.
            RequestTimedOutError: The voters have no majority.
            BrokerError: The name or a setting is not legal, or the topic cannot be created.
        """
        (result,) = (await self.create_all(CreateQueuesRequest([request]), principal)).results
        if result.error is not None:
            raise from_wire(result.error)
        await self._applier.open_all(result.topic_id)
        await self._applier.settle(result.queue_id)
        return CreateQueueReply(result.queue_id, result.topic_id)

    async def create_all(
        self, request: CreateQueuesRequest, principal: Principal = ANONYMOUS
    ) -> CreateQueuesReply:
        """Create queues of a principal, in their order; each has a result of its own.

        The logs of very many queues are created when they are used.

        Raises:
            RequestTimedOutError: The voters have no majority; any queue may be created or not.
        """
        results: list[QueueCreated | None] = []
        commands: list[CreateQueue] = []
        for wanted in request.queues:
            try:
                commands.append(await self._command(wanted, principal))
            except (InvalidConfigError, InvalidRequestError, BrokerNotReadyError) as error:
                results.append(QueueCreated(b"", b"", error.to_wire()))
            else:
                results.append(None)
        decided = iter([each for part in _parts(commands) for each in await self._decide_all(part)])
        return CreateQueuesReply([next(decided) if each is None else each for each in results])

    async def _command(self, request: CreateQueueRequest, principal: Principal) -> CreateQueue:
        defaults = self._config.topic_defaults
        if "retention_ms" in request.config:
            defaults = retained_for_queue(defaults, request.config)
        topic_overrides = {**defaults, **request.topic_config}
        self._check_batch_limit(topic_overrides)
        await require_labels(self._cluster, request.labels)
        await require_queue_settings(self._cluster, request.config)
        random = self._env.random
        return CreateQueue(
            request.name,
            random.randbytes(TOPIC_ID_SIZE),
            random.randbytes(RECEIPT_KEY_SIZE),
            random.randbytes(TOPIC_ID_SIZE),
            self._env.clock.now_ms(),
            request.topic,
            request.topic_id,
            request.start_offsets,
            request.is_fifo,
            request.config,
            request.partition_count,
            topic_overrides,
            request.labels,
            str(principal),
        )

    async def _decide_all(self, commands: list[CreateQueue]) -> list[QueueCreated]:
        """Have the controller decide about queues."""
        if len(commands) == 1 or self._level < CREATE_QUEUES_LEVEL:
            decided = [await self._decide_one(command) for command in commands]
        else:
            reply = await self._cluster.command_client.submit(
                CreateQueues(commands), timeout_s=_DECIDE_TIMEOUT_S
            )
            assert isinstance(reply, QueueResults)
            decided = reply.results
        return [
            await self._settled(command, result)
            for command, result in zip(commands, decided, strict=True)
        ]

    async def _decide_one(self, command: CreateQueue) -> QueueResult:
        try:
            return QueueResult(await self._decide(command))
        except RequestTimedOutError:
            raise
        except BrokerError as error:
            return QueueResult(None, error.to_wire())

    async def _settled(self, command: CreateQueue, result: QueueResult) -> QueueCreated:
        answer = result.answer
        if answer is None:
            return QueueCreated(b"", b"", result.error)
        is_new = answer.queue_id == command.queue_id
        if not is_new:
            # An earlier request may have created it while this broker's disk was full.
            self._applier.retry()
        try:
            await self._applier.settle(answer.topic_id)
            await self._applier.settle(answer.queue_id)
        except BrokerError as error:
            return QueueCreated(b"", b"", error.to_wire())
        if is_new:
            self._env.probe("queue_created", queue=command.name, topic=command.topic)
        return QueueCreated(answer.queue_id, answer.topic_id)

    async def list_names(self, request: ListNamesRequest) -> ListNamesReply:
        """Return names of queues, one page."""
        page = self._catalog.queue_names.page(
            prefix=request.prefix, after=request.after, limit=request.limit
        )
        return ListNamesReply(*page)

    async def describe(self, request: DescribeQueuesRequest) -> DescribeQueuesReply:
        """Describe queues by name, or all.

        Raises:
            UnknownQueueError: The queue does not exist in the newest metadata that could be
                reached.
        """
        if request.queues is None:
            journals = self._catalog.journals
        else:
            if not all(map(self._catalog.has_queue, request.queues)):
                # Another broker may have created it a moment ago.
                await self._cluster.command_client.catch_up(timeout_s=_DECIDE_TIMEOUT_S)
            journals = [self._catalog.journal(name) for name in request.queues]
        return DescribeQueuesReply([self._describe(each) for each in journals])

    async def alter(self, request: AlterQueueRequest) -> AlterQueueReply:
        """Change settings and labels of a queue.

        Raises:
            UnknownQueueError: The queue, or its dead-letter queue, does not exist.
            InvalidConfigError: A setting is unknown, not legal or cannot be changed.
            RequestTimedOutError: The voters have no majority.
        """
        await require_labels(self._cluster, request.set_labels)
        await require_queue_settings(self._cluster, request.set_config)
        answer = await self._decide(
            AlterQueue(
                request.name,
                request.set_config,
                request.reset_config,
                request.set_labels,
                request.remove_labels,
                self._env.clock.now_ms(),
            )
        )
        journal = self._catalog.topic_by_id(answer.queue_id)
        if journal is None:
            raise UnknownQueueError(f"queue {request.name!r} was deleted meanwhile")
        self._env.probe("queue_altered", queue=request.name, config=_overrides(journal))
        return AlterQueueReply(_settings(journal))

    async def delete(self, request: DeleteQueueRequest) -> DeleteQueueReply:
        """Delete a queue, and the files that this broker has of it.

        Raises:
            UnknownQueueError: The queue does not exist.
            InvalidRequestError: The queue is the dead-letter queue of others, or its topic has
                other queues.
            RequestTimedOutError: The voters have no majority.
        """
        # The name may belong to another queue by now, in metadata that this broker lacks.
        await self._cluster.command_client.catch_up(timeout_s=_DECIDE_TIMEOUT_S)
        journal = self._catalog.journal(request.name)
        answer = await self._decide(
            DeleteQueue(request.name, journal.topic_id, request.with_topic, request.detach_sources)
        )
        await self._applier.settle(answer.queue_id)
        if request.with_topic:
            await self._applier.settle(journal.source_id)
        self._env.probe("queue_deleted", queue=request.name)
        return DeleteQueueReply(answer.queue_id)

    def _check_batch_limit(self, overrides: dict[str, str]) -> None:
        limit = self._config.max_message_bytes_limit
        if topic_config(overrides).log.max_message_bytes > limit:
            raise InvalidConfigError(
                "max_message_bytes is larger than this broker's socket_request_max_bytes"
                f" allows, {limit}"
            )

    def _describe(self, journal: Topic) -> QueueDescription:
        state = self._cluster.metadata.state
        spec, source = journal.queue, self._catalog.topic_by_id(journal.source_id)
        assert spec is not None, "only journals are described"
        assert source is not None, "a topic with queues is not deleted"
        log = topic_config(source.overrides).log
        return QueueDescription(
            journal.queue_name,
            journal.topic_id,
            source.name,
            source.topic_id,
            spec.is_fifo,
            spec.created_at_ms,
            _settings(journal),
            sorted(_overrides(journal)),
            [user.queue_name for user in self._catalog.dead_letter_sources(journal.queue_name)],
            [
                QueuePartitionDescription(
                    number,
                    partition.leader,
                    partition.leader_epoch,
                    spec.start_offsets[number],
                    list(partition.replicas),
                    list(partition.in_sync_replicas),
                )
                for number, partition in enumerate(state.partitions(journal.topic_id))
            ],
            log.retention_ms,
            log.retention_bytes,
            journal.labels,
            journal.modified_at_ms,
        )

    @property
    def _level(self) -> int:
        return self._cluster.metadata.state.feature_level

    @property
    def _catalog(self) -> Catalog:
        return self._cluster.metadata.state.catalog

    async def _decide(self, command: QueueCommand) -> QueueAnswer:
        reply = await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
        assert isinstance(reply, QueueAnswer)
        return reply


def _parts(commands: Iterable[CreateQueue]) -> Iterator[list[CreateQueue]]:
    """Yield the commands of each entry, which creates few partitions, or those of one queue."""
    part: list[CreateQueue] = []
    count = 0
    for command in commands:
        added = command.partition_count or len(command.start_offsets) or 1
        if part and count + added > _PARTITIONS_AT_ONCE:
            yield part
            part, count = [], 0
        part.append(command)
        count += added
    if part:
        yield part


def _overrides(journal: Topic) -> dict[str, str]:
    assert journal.queue is not None, "only journals have settings of a queue"
    return journal.queue.settings


def _settings(journal: Topic) -> dict[str, str]:
    assert journal.queue is not None, "only journals have settings of a queue"
    return effective_queue_settings(_overrides(journal), is_fifo=journal.queue.is_fifo)
