"""Handlers of METADATA and INIT_PRODUCER: leaders of partitions, and producer ids."""

from collections.abc import Iterable
from typing import Final, final

import msgspec

from tidelog.broker.config.broker_config import BrokerConfig, parse_address
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.requests.response import ResponseHandle
from tidelog.broker.requests.steps import Steps, finish
from tidelog.coordinator.metadata.catalog import (
    Catalog,
    Topic,
    queue_of_journal,
    topic_of_staging,
)
from tidelog.coordinator.metadata.features import batch_format
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    ErrorDetail,
    LeaderNotAvailableError,
    UnknownQueueError,
    UnknownTopicError,
    WireFormatError,
)
from tidelog.wire.messages.metadata import (
    BrokerAddress,
    MetadataReply,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
)
from tidelog.wire.protocol import api

_ASK_TIMEOUT_S: Final = 1.0
_COST_AT_ONCE: Final = 500
"""Partitions that are described before other tasks run."""
_TOPIC_COST: Final = 5
"""Cost of a topic without partitions, or of one that does not exist."""
_BATCH_FORMAT_VERSION: Final = 4
"""First version of the API whose replies name the format of batches."""


@final
class MetadataHandler:
    """Tells clients the brokers, the topics and the leaders of their partitions."""

    def __init__(
        self, config: BrokerConfig, cluster: ClusterNode, partitions: ReplicaManager
    ) -> None:
        """Answer for the broker of `config`, by its metadata of the cluster."""
        self._config = config
        self._cluster = cluster
        self._partitions = partitions

    def answer(self, request: MetadataRequest, response: ResponseHandle) -> Steps:
        """Describe topics, in steps."""
        topics: list[TopicMetadata] = []
        yield from self._describe_all(request, topics)
        response.reply(self._reply(topics, response.context.local, response.version))

    def _describe_all(self, request: MetadataRequest, topics: list[TopicMetadata]) -> Steps:
        """Add the descriptions of the requested topics to `topics`."""
        catalog = self._cluster.metadata.state.catalog
        if request.topics is None:
            wanted: Iterable[Topic | TopicMetadata] = catalog.record_topics
        else:
            wanted = map(self._found, dict.fromkeys(request.topics))
        cost = 0
        for each in wanted:
            cost += _TOPIC_COST
            if isinstance(each, TopicMetadata):
                topics.append(each)
            else:
                partitions: list[PartitionMetadata] = []
                known = self._cluster.metadata.state.partitions(each.topic_id)
                for number, partition in enumerate(known):
                    partitions.append(self._describe(each, number, partition))
                    cost += 1
                    if cost >= _COST_AT_ONCE:
                        yield
                        cost = 0
                topics.append(TopicMetadata(each.name, each.topic_id, partitions))
            if cost >= _COST_AT_ONCE:
                yield
                cost = 0

    def _reply(
        self, topics: list[TopicMetadata], local: tuple[str, int], version: int
    ) -> MetadataReply:
        raft = self._cluster.raft
        has_format = version >= _BATCH_FORMAT_VERSION
        level = self._cluster.metadata.state.feature_level if has_format else 0
        return MetadataReply(
            raft.cluster_id, self._brokers(local), topics, raft.leader_id, batch_format(level)
        )

    def _brokers(self, local: tuple[str, int]) -> list[BrokerAddress]:
        """Return this broker, and all others that are not fenced."""
        host, port = local
        if self._config.advertised:
            host, port = parse_address(self._config.advertised)
        own_id = self._config.node_id
        others = [
            BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in self._cluster.metadata.state.brokers.values()
            if broker.node_id != own_id and not broker.is_fenced
        ]
        brokers = [BrokerAddress(own_id, host, port, self._config.broker_rack), *others]
        return sorted(brokers, key=lambda broker: broker.node_id)

    def may_be_behind(self, request: MetadataRequest) -> bool:
        """Return whether another broker may know a requested topic that this broker does not know.

        A topic that was just created through another broker must not seem to be missing.
        """
        raft = self._cluster.raft
        if request.topics is None or raft.is_active_leader:
            return False
        catalog = self._cluster.metadata.state.catalog
        return any(not catalog.has_topic(name) for name in request.topics)

    async def describe_after_asking(
        self, request: MetadataRequest, *, local: tuple[str, int], version: int
    ) -> MetadataReply:
        """Describe topics; ask the node that leads the cluster for those that are unknown here.

        `local` is the address at which the client reached this broker, and `version` that of its
        request. If that node does not answer, unknown topics get a retriable error: they may exist.
        """
        raft = self._cluster.raft
        described: list[TopicMetadata] = []
        await finish(self._describe_all(request, described))
        reply = self._reply(described, local, version)
        unknown = [topic.name for topic in described if topic.error is not None]
        if not unknown:
            return reply
        found: dict[str, TopicMetadata] = {}
        reason = "no node leads the cluster"
        if raft.leader_id is not None and raft.leader_id != self._config.node_id:
            try:
                newer = await self._cluster.peers.ask(
                    raft.leader_id, api.METADATA, MetadataRequest(unknown), timeout_s=_ASK_TIMEOUT_S
                )
            except (BrokerError, ConnectionLostError, WireFormatError) as error:
                reason = str(error)
            else:
                found = {topic.name: topic for topic in newer.topics}
        topics = [
            topic if topic.error is None else found.get(topic.name, _not_verified(topic, reason))
            for topic in reply.topics
        ]
        return msgspec.structs.replace(reply, topics=topics)

    def _found(self, name: str) -> Topic | TopicMetadata:
        try:
            return _found(self._cluster.metadata.state.catalog, name)
        except (UnknownTopicError, UnknownQueueError) as error:
            detail: ErrorDetail = error.to_wire()
            return TopicMetadata(name, b"", [], detail)

    def _describe(
        self, topic: Topic, number: int, known: PartitionRegistration
    ) -> PartitionMetadata:
        leader = known.leader
        is_ours = leader == self._config.node_id
        if is_ours and not self._partitions.is_led(topic.topic_id, number):
            leader = None  # The log is being opened; clients must not connect before that.
        in_sync = list(known.in_sync_replicas)
        return PartitionMetadata(number, leader, known.leader_epoch, in_sync)


def _found(catalog: Catalog, name: str) -> Topic:
    """Return the topic of a name; clients ask for internal topics to find their brokers.

    Raises:
        UnknownTopicError: The topic does not exist.
        UnknownQueueError: The queue does not exist.
    """
    queue, staged = queue_of_journal(name), topic_of_staging(name)
    if queue is not None:
        return catalog.journal(queue)
    if staged is None:
        return catalog.topic(name)
    staging = catalog.staging_of(catalog.topic(staged).topic_id)
    if staging is None:
        raise UnknownTopicError(
            f"topic {staged!r} has no staging log: no records were staged for it"
        )
    return staging


def _not_verified(topic: TopicMetadata, reason: str) -> TopicMetadata:
    error = LeaderNotAvailableError(
        f"topic {topic.name!r} is not known to this broker, which may be behind: {reason}"
    )
    return msgspec.structs.replace(topic, error=error.to_wire())
