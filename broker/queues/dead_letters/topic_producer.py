"""Producer of a broker, for topics that any broker may lead."""

from typing import Final, final

from tidelog.coordinator.metadata.catalog import queue_of_journal
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import LeaderNotAvailableError, UnknownTopicError, from_wire
from tidelog.wire.messages.produce import (
    Acks,
    DescribeProducerReply,
    DescribeProducerRequest,
    PartitionBatch,
    ProduceRequest,
)
from tidelog.wire.messages.queue_journal import Target
from tidelog.wire.protocol import api

_TIMEOUT_MS: Final = 10_000
_ANSWER_TIMEOUT_S: Final = 15.0


@final
class TopicProducer:
    """Sends batches to the leaders of partitions, as a client does."""

    def __init__(self, cluster: ClusterNode) -> None:
        """Find leaders in the metadata of `cluster`."""
        self._cluster = cluster

    def topic_name(self, topic_id: bytes) -> str:
        """Return the name of a topic, empty if it does not exist (any more)."""
        topic = self._cluster.metadata.state.catalog.topic_by_id(topic_id)
        return "" if topic is None else topic.name

    def is_source(self, topic_id: bytes, queue: str) -> bool:
        """Return whether a queue on a topic has `queue` as its dead-letter queue."""
        catalog = self._cluster.metadata.state.catalog
        configs = (journal.queue_config for journal in catalog.journals_of(topic_id))
        return any(each is not None and each.dead_letter_queue == queue for each in configs)

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of the topic of this name; queues never use that of the audit topic."""
        catalog = self._cluster.metadata.state.catalog
        is_there = bool(name) and catalog.has_topic(name) and queue_of_journal(name) is None
        return catalog.topic(name).topic_id if is_there else None

    def partition_count(self, topic_id: bytes) -> int:
        """Return the number of partitions of a topic, 0 if no records can be moved to it."""
        topic = self._cluster.metadata.state.catalog.topic_by_id(topic_id)
        if topic is None or topic.queue is not None or topic.is_audit:
            return 0
        return topic.partition_count

    def knows(self, topic_id: bytes) -> bool:
        """Return whether a topic exists or was deleted; others may not be known here yet."""
        return self._cluster.metadata.state.catalog.knows(topic_id)

    async def produce(self, target: Target, batch: BytesLike) -> int:
        """Append one batch and return its first offset; it is committed when this returns.

        Raises:
            UnknownTopicError: The topic was deleted.
            BrokerError: The batch was refused, or its outcome is unknown.
            ConnectionLostError: The outcome is unknown.
        """
        request = ProduceRequest(Acks.ALL, _TIMEOUT_MS, [PartitionBatch(*target, len(batch))])
        reply = await self._cluster.peers.ask(
            self._leader(target),
            api.PRODUCE,
            request,
            timeout_s=_ANSWER_TIMEOUT_S,
            attachment=[batch],
        )
        result = reply.results[0]
        if result.error is not None:
            raise from_wire(result.error)
        return result.base_offset

    async def progress(self, target: Target, producer_id: int) -> DescribeProducerReply:
        """Return the committed position of a producer at a target.

        Raises:
            UnknownTopicError: The topic was deleted.
            BrokerError: The position is unknown at the moment.
            ConnectionLostError: The same.
        """
        return await self._cluster.peers.ask(
            self._leader(target),
            api.DESCRIBE_PRODUCER,
            DescribeProducerRequest(*target, producer_id),
            timeout_s=_ANSWER_TIMEOUT_S,
        )

    def _leader(self, target: Target) -> int:
        state = self._cluster.metadata.state
        if state.catalog.was_deleted(target[0]):
            raise UnknownTopicError("the topic was deleted")
        partition = state.partition(*target)
        if partition is None or partition.leader is None:
            raise LeaderNotAvailableError(f"partition {target[1]} has no leader at the moment")
        return partition.leader
