"""The audit topic, as brokers create and write it.

Shell: sends batches to the leader of the topic, as an idempotent producer.
"""

from collections.abc import Sequence
from typing import Final, Protocol, final

import trio

from tidelog.broker.audit.buffer import BufferedRecord
from tidelog.coordinator.metadata.catalog import TOPIC_ID_SIZE, TakeProducerIds, Topic
from tidelog.coordinator.metadata.commands import CreateReplicatedTopic, ProducerIds
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.env.env import BytesLike, Env
from tidelog.wire.errors import (
    DuplicateSequenceError,
    LeaderNotAvailableError,
    OutOfOrderSequenceError,
    TopicExistsError,
    UnknownTopicError,
)
from tidelog.wire.messages.queue_journal import Target
from tidelog.wire.security.audit_topic import AUDIT_TOPIC

_FEATURE_LEVEL: Final = 4
"""Nodes of earlier versions do not protect the topic from clients."""
_DECIDE_TIMEOUT_S: Final = 10.0
_REPLICAS: Final = 3
_PATIENCE_S: Final = 30.0
"""Time in seconds after the start in which a new topic waits for brokers that take its replicas."""
_SETTINGS: Final = {"retention_ms": "90d"}


class BatchProducer(Protocol):
    """Sends batches to the leaders of partitions."""

    async def produce(self, target: Target, batch: BytesLike) -> int:
        """Append one batch and return its first offset; it is committed when this returns.

        Raises:
            BrokerError: The batch was refused, or its outcome is unknown.
            ConnectionLostError: The outcome is unknown.
        """
        ...


@final
class AuditTopic:
    """Writes audit records; each is appended once, as long as the broker runs."""

    def __init__(self, env: Env, cluster: ClusterNode, producer: BatchProducer) -> None:
        """Write with `producer`, by the metadata of `cluster`."""
        self._env = env
        self._cluster = cluster
        self._producer = producer
        self._patient_until = trio.current_time() + _PATIENCE_S
        self._producer_id: int | None = None
        self._sequences: dict[Target, int] = {}
        """Next sequence by partition."""

    async def write(self, records: Sequence[BufferedRecord]) -> None:
        """Append records; they are committed when this returns.

        After an error, write the same records again: they may be appended already, and then a
        repetition changes nothing.

        Raises:
            BrokerError: The topic cannot be created or written now, or refuses the records.
            ConnectionLostError: The outcome is unknown.
        """
        topic = await self._ready_topic()
        if self._producer_id is None:
            self._producer_id = await self._new_producer_id()
        target = (topic.topic_id, self._cluster.node_id % topic.partition_count)
        sequence = self._sequences.get(target, 0)
        batch = encode_batch(
            Columns(
                len(records),
                keys=[record.key for record in records],
                values=[record.data for record in records],
            ),
            first_timestamp_ms=self._env.clock.now_ms(),
            producer_id=self._producer_id,
            base_sequence=sequence,
        )
        try:
            await self._producer.produce(target, batch)
        except DuplicateSequenceError:
            pass  # An earlier attempt has appended them.
        except OutOfOrderSequenceError as error:
            # The topic has lost or forgotten the sequences; a new identity has none.
            self._producer_id = None
            self._sequences.clear()
            raise LeaderNotAvailableError(
                f"the audit topic has lost earlier records of this broker: {error}"
            ) from error
        self._sequences[target] = sequence + len(records)

    async def _ready_topic(self) -> Topic:
        """Return the topic; create it if it is missing.

        Raises:
            BrokerError: It cannot be created now.
        """
        catalog = self._cluster.metadata.state.catalog
        if not catalog.has_topic(AUDIT_TOPIC):
            await self._create()
            catalog = self._cluster.metadata.state.catalog
        if not catalog.has_topic(AUDIT_TOPIC):
            raise UnknownTopicError("the audit topic does not exist yet")
        return catalog.topic(AUDIT_TOPIC)

    async def _create(self) -> None:
        state = self._cluster.metadata.state
        level = state.feature_level
        if level < _FEATURE_LEVEL:
            raise LeaderNotAvailableError(
                f"the audit topic needs feature level {_FEATURE_LEVEL}, and the cluster has level"
                f" {level}; when all nodes run a newer version, run `tidelog cluster features"
                " --upgrade`"
            )
        there = len(state.undrained_brokers)
        expected = min(len(self._cluster.raft.membership.members), _REPLICAS)
        if there < expected and trio.current_time() < self._patient_until:
            raise LeaderNotAvailableError(
                f"the audit topic gets {expected} replicas, and {there} brokers are registered yet"
            )
        command = CreateReplicatedTopic(
            AUDIT_TOPIC,
            self._env.random.randbytes(TOPIC_ID_SIZE),
            1,
            dict(_SETTINGS),
            max(1, min(_REPLICAS, there)),
        )
        try:
            await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
        except TopicExistsError:
            await self._cluster.command_client.catch_up(timeout_s=_DECIDE_TIMEOUT_S)
        else:
            self._env.probe("audit_topic_created", topic=AUDIT_TOPIC)

    async def _new_producer_id(self) -> int:
        command = TakeProducerIds()
        reply = await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
        assert isinstance(reply, ProducerIds)
        return reply.first
