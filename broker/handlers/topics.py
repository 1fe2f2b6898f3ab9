"""Handlers of topic administration: create, describe, alter, delete, and delete old records."""

from collections.abc import Mapping, Sequence
from typing import Final, final

import msgspec
import trio

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.handlers.events import describe_event
from tidelog.broker.handlers.feature_level import require_labels, require_topic_settings
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.metadata_applier import MetadataApplier
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.coordinator.metadata.catalog import (
    TOPIC_ID_SIZE,
    AlterTopic,
    Catalog,
    DeleteTopic,
    Topic,
    check_not_audit,
    check_topic_name,
)
from tidelog.coordinator.metadata.cluster_config import min_insync_replicas
from tidelog.coordinator.metadata.commands import AddPartitions, Command, CreateReplicatedTopic
from tidelog.coordinator.metadata.leaderless import why_leaderless
from tidelog.coordinator.metadata.records import ClusterEvent, PartitionRegistration
from tidelog.coordinator.metadata.topic_config import (
    REPLICATION_FACTOR_MAX,
    check_settings,
    effective_settings,
    topic_config,
)
from tidelog.coordinator.node import ClusterNode
from tidelog.logstore.log import LogStatus
from tidelog.wire.config.durations import portable_settings
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    DiskFullError,
    InvalidConfigError,
    LogOfflineError,
    UnknownTopicError,
)
from tidelog.wire.messages.cluster_admin import EventDescription
from tidelog.wire.messages.names import ListNamesReply, ListNamesRequest
from tidelog.wire.messages.topics import (
    AddPartitionsReply,
    AddPartitionsRequest,
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
    RefusedRecords,
    TopicDescription,
)
from tidelog.wire.protocol import api
from tidelog.wire.security.principal import ANONYMOUS, Principal

_DECIDE_TIMEOUT_S: Final = 10.0
_DESCRIBE_TIMEOUT_S: Final = 2.0
_COST_AT_ONCE: Final = 250
"""Partitions that are described before other tasks run."""
_TOPIC_COST: Final = 10
"""Cost of a topic without its partitions."""
_UNKNOWN: Final = "unknown"
"""Status of a partition whose leader did not answer."""


@final
class TopicsHandler:
    """Administration of topics.

    On cancellation, a change may be carried out or not.
    """

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        cluster: ClusterNode,
        *,
        partitions: ReplicaManager,
        applier: MetadataApplier,
        group_commit: GroupCommit,
    ) -> None:
        """Submit changes of topics to the cluster; `applier` applies them to `partitions`."""
        self._env = env
        self._config = config
        self._cluster = cluster
        self._partitions = partitions
        self._applier = applier
        self._group_commit = group_commit

    async def create(
        self, request: CreateTopicRequest, principal: Principal = ANONYMOUS
    ) -> CreateTopicReply:
        """Create a topic of a principal; this broker's logs of it are open when this returns."""
        check_topic_name(request.name)  # The controller allows one more, which brokers create.
        overrides = {**self._config.topic_defaults, **request.config}
        # Only the controller knows the number of replicas.
        check_settings(overrides, replication_factor=REPLICATION_FACTOR_MAX)
        self._check_batch_limit(overrides)
        await require_labels(self._cluster, request.labels)
        await require_topic_settings(self._cluster, overrides)
        topic_id = self._env.random.randbytes(TOPIC_ID_SIZE)
        command = CreateReplicatedTopic(
            request.name,
            topic_id,
            request.partition_count,
            overrides,
            request.replication_factor,
            labels=request.labels,
            created_by=str(principal),
        )
        settings = effective_settings(overrides)
        if request.validate_only:
            self._cluster.metadata.check(command)
            return CreateTopicReply(b"", request.partition_count, settings)
        topic = self._begun(command)
        if topic is None:
            await self._decide(command)
            topic = self._catalog.topic(request.name)
        else:
            self._applier.retry()
        await self._applier.open_all(topic.topic_id)
        self._env.probe("topic_created", topic=topic.name, partition_count=topic.partition_count)
        return CreateTopicReply(topic.topic_id, topic.partition_count, settings)

    def _begun(self, command: CreateReplicatedTopic) -> Topic | None:
        """Return the topic if this very command was carried out before, except for its logs."""
        try:
            topic = self._catalog.topic(command.name)
        except UnknownTopicError:
            return None
        asked = (
            command.partition_count,
            portable_settings(command.overrides),
            command.labels,
        )
        is_same = (topic.partition_count, topic.overrides, topic.labels) == asked
        return topic if is_same and self._applier.has_failed(topic.topic_id) else None

    async def list_names(self, request: ListNamesRequest) -> ListNamesReply:
        """Return names of topics, one page."""
        page = self._catalog.topic_names.page(
            prefix=request.prefix, after=request.after, limit=request.limit
        )
        return ListNamesReply(*page)

    async def describe(self, request: DescribeTopicsRequest) -> DescribeTopicsReply:
        """Describe topics by name, or all; other brokers are asked for the partitions they lead."""
        if request.topics is None:
            topics = self._catalog.record_topics
        else:
            topics = [self._catalog.topic(name) for name in dict.fromkeys(request.topics)]
        events = self._cluster.metadata.state.events.by_topic()
        described: list[TopicDescription] = []
        cost = 0
        for topic in topics:
            described.append(self._describe(topic, events))
            cost += _TOPIC_COST + topic.partition_count
            if cost >= _COST_AT_ONCE:
                await trio.lowlevel.checkpoint()
                cost = 0
        if request.is_local:
            return DescribeTopicsReply(described)
        return DescribeTopicsReply(await self._complete(described))

    async def _complete(self, described: list[TopicDescription]) -> list[TopicDescription]:
        """Add the descriptions of the leaders of other partitions, as far as they answer."""
        wanted: dict[int, dict[str, None]] = {}
        for topic in described:
            for partition in topic.partitions:
                if partition.leader_id not in (None, self._config.node_id):
                    wanted.setdefault(partition.leader_id, {})[topic.name] = None
        answers: dict[tuple[bytes, int], PartitionDescription] = {}

        def take(node_id: int, reply: DescribeTopicsReply) -> None:
            for topic in reply.topics:
                for partition in topic.partitions:
                    if partition.leader_id == node_id:
                        answers[topic.topic_id, partition.partition] = partition

        await self._cluster.peers.ask_each(
            wanted,
            api.DESCRIBE_TOPICS,
            lambda names: DescribeTopicsRequest(names, is_local=True),
            take=take,
            timeout_s=_DESCRIBE_TIMEOUT_S,
        )
        return [
            msgspec.structs.replace(
                topic,
                partitions=[
                    answers.get((topic.topic_id, partition.partition), partition)
                    for partition in topic.partitions
                ],
            )
            for topic in described
        ]

    async def alter(self, request: AlterTopicRequest) -> AlterTopicReply:
        """Change settings and labels of a topic."""
        self._check_batch_limit(request.set_config)
        await require_labels(self._cluster, request.set_labels)
        await require_topic_settings(self._cluster, request.set_config)
        await self._decide(self._alteration(request))
        overrides = self._catalog.topic(request.name).overrides
        self._env.probe("topic_altered", topic=request.name, config=overrides)
        return AlterTopicReply(effective_settings(overrides))

    def _alteration(self, request: AlterTopicRequest) -> AlterTopic:
        """Return the command; a setting that is reset gets this broker's default for new topics."""
        defaults = self._config.topic_defaults
        both = request.set_config.keys() & set(request.reset_config)
        if both:
            names = ", ".join(sorted(both))
            raise InvalidConfigError(f"{names} cannot be set and reset at the same time")
        given = {name: defaults[name] for name in request.reset_config if name in defaults}
        reset = [name for name in request.reset_config if name not in defaults]
        return AlterTopic(
            request.name,
            {**request.set_config, **given},
            reset,
            set_labels=request.set_labels,
            remove_labels=request.remove_labels,
        )

    async def add_partitions(self, request: AddPartitionsRequest) -> AddPartitionsReply:
        """Add partitions to a topic; this broker's new logs of it are open when this returns."""
        # This broker may lack the newest number of partitions.
        await self._cluster.command_client.catch_up(timeout_s=_DECIDE_TIMEOUT_S)
        topic = self._catalog.topic(request.name)
        queues = sorted(journal.queue_name for journal in self._catalog.journals_of(topic.topic_id))
        added = request.partition_count - topic.partition_count
        command = AddPartitions(request.name, request.partition_count, topic.topic_id)
        reply = AddPartitionsReply(topic.topic_id, request.partition_count, added, queues)
        if request.validate_only:
            self._cluster.metadata.check(command)
            return reply
        await self._decide(command)
        for grown in (topic, *self._catalog.internal_topics_of(topic.topic_id)):
            await self._applier.open_all(grown.topic_id)
        if added:
            self._env.probe(
                "topic_grown", topic=request.name, partition_count=request.partition_count
            )
        return reply

    async def delete(self, request: DeleteTopicRequest) -> DeleteTopicReply:
        """Delete a topic, and the files that this broker has of it."""
        # The name may belong to another topic by now, in metadata that this broker lacks.
        await self._cluster.command_client.catch_up(timeout_s=_DECIDE_TIMEOUT_S)
        topic = self._catalog.topic(request.name)
        await self._decide(DeleteTopic(request.name, topic.topic_id))
        await self._applier.settle(topic.topic_id)
        self._env.probe("topic_deleted", topic=request.name)
        return DeleteTopicReply(topic.topic_id)

    async def delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsReply:
        """Raise the log start offset of a partition; durable when this returns."""
        partition = self._partitions.find(request.topic_id, request.partition)
        check_not_audit(partition.topic, "keeps its records")
        before_offset = request.before_offset
        if before_offset is None:
            before_offset = partition.high_watermark
        partition.log.delete_records(before_offset, high_watermark=partition.high_watermark)
        try:
            await self._group_commit.flush_now(partition)
        except LogOfflineError:
            # Raises if the topic was deleted meanwhile.
            self._partitions.find(request.topic_id, request.partition)
            raise
        if partition.log.is_checkpoint_due:
            raise DiskFullError(
                "the disk is full; the records are deleted, but a restart may bring them back"
            )
        return DeleteRecordsReply(partition.log.log_start_offset)

    def _check_batch_limit(self, overrides: dict[str, str]) -> None:
        limit = self._config.max_message_bytes_limit
        max_message_bytes = topic_config(
            {name: text for name, text in overrides.items() if name == "max_message_bytes"}
        ).log.max_message_bytes
        if max_message_bytes > limit:
            raise InvalidConfigError(
                f"max_message_bytes is {max_message_bytes}, this broker's"
                f" socket_request_max_bytes allows {limit}"
            )

    def _describe(
        self, topic: Topic, events: Mapping[bytes, Sequence[ClusterEvent]]
    ) -> TopicDescription:
        state = self._cluster.metadata.state
        known = state.partitions(topic.topic_id)
        factor = min((each.replication_factor for each in known), default=1)
        settings = effective_settings(topic.overrides)
        # The effective value depends on the number of replicas.
        minimum = "min_insync_replicas"
        settings[minimum] = str(min_insync_replicas(topic, state.config, factor))
        is_of_cluster = minimum in state.overrides and minimum not in topic.overrides
        return TopicDescription(
            topic.name,
            topic.topic_id,
            settings,
            sorted(topic.overrides),
            [
                self._describe_partition(topic, number, partition)
                for number, partition in enumerate(known)
            ],
            [minimum] if is_of_cluster else [],
            self._describe_events(topic, events) if events else [],
            topic.labels,
        )

    def _describe_events(
        self, topic: Topic, events: Mapping[bytes, Sequence[ClusterEvent]]
    ) -> list[EventDescription]:
        """Return the events of a topic and of its internal topics, oldest first."""
        topics = [topic, *self._catalog.internal_topics_of(topic.topic_id)]
        found = [event for each in topics for event in events.get(each.topic_id, ())]
        return [describe_event(each) for each in sorted(found, key=lambda each: each.event_id)]

    def _describe_partition(
        self, topic: Topic, number: int, known: PartitionRegistration
    ) -> PartitionDescription:
        replicas, in_sync = list(known.replicas), list(known.in_sync_replicas)
        refused = [
            RefusedRecords(each.node_id, each.offset, each.high_watermark)
            for each in known.refusing_replicas
        ]
        key = topic.topic_id, number
        is_blank = self._partitions.idle.is_blank(key)
        replica = None if is_blank else self._partitions.replica(*key)
        if replica is None or known.leader != self._config.node_id:
            is_ours = known.leader == self._config.node_id
            leader_id = None if is_ours and not is_blank else known.leader
            status = LogStatus.OFFLINE.value if is_ours else _UNKNOWN
            if is_blank:
                status = LogStatus.ONLINE.value
            reason = why_leaderless(self._cluster.metadata.state, topic, number)
            return PartitionDescription(
                number,
                leader_id,
                known.leader_epoch,
                0,
                0,
                0,
                0,
                status,
                replicas,
                in_sync,
                refused,
                "" if reason is None else reason.text,
            )
        log = replica.log
        return PartitionDescription(
            number,
            known.leader,
            known.leader_epoch,
            log.log_start_offset,
            replica.high_watermark,
            log.log_end_offset,
            log.size_bytes,
            log.status.value,
            replicas,
            in_sync,
            refused,
        )

    @property
    def _catalog(self) -> Catalog:
        return self._cluster.metadata.state.catalog

    async def _decide(self, command: Command) -> None:
        await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
