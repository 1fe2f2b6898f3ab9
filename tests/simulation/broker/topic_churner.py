"""A client that creates topics, uses them a little and deletes them, under the same few names."""

from functools import partial
from random import Random
from typing import final

import trio

from tests.simulation.broker.plans import ProducerPlan
from tests.simulation.broker.readers import PATIENCE_S, RawReader, with_connection
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.broker.writers import RawWriter, Values
from tests.simulation.checkers.run_history import RunHistory, TopicChange, ViolationError
from tests.simulation.machine.broker_host import HOST, PORT
from tests.simulation.machine.process import Process
from tidelog.client.admin.admin import Admin
from tidelog.client.client import connect
from tidelog.wire.errors import (
    TidelogError,
    TopicExistsError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.topics import TopicDescription
from tidelog.wire.transport.rpc import RpcConnection

NAMES = ("delays", "gates")
_PARTITIONS_MAX = 2
_DELETES = 0.5
_HAUNTS = 0.3
_PRODUCER = ProducerPlan(
    kind="raw",
    acks=2,
    is_idempotent=True,
    compression="none",
    pause_s=0.01,
    burst_max=4,
    max_value_bytes=100,
    delivery_timeout_s=10.0,
)


@final
class TopicChurner:
    """Creates and deletes topics under names that no other client uses.

    If the reply of a change is lost, the client reads its outcome from the metadata. When it is
    told to stop, it creates a topic once more, and writes to it.
    """

    def __init__(
        self,
        name: str,
        pause_s: float,
        random: Random,
        *,
        run_history: RunHistory,
        sometimes: Sometimes,
    ) -> None:
        """Pause for `pause_s` between two commands, on average."""
        self.should_stop = False
        self._name = name
        self._pause_s = pause_s
        self._random = random
        self._run_history = run_history
        self._sometimes = sometimes
        self._producer_id = 0
        self._writers: dict[bytes, RawWriter] = {}

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        await with_connection(process, partial(self._churn, process))

    async def _churn(self, process: Process, connection: RpcConnection) -> None:
        async with connect(f"{HOST}:{PORT}", env=process.env, request_timeout=PATIENCE_S) as client:
            while not self.should_stop:
                await self._step(client.admin, connection, self._random.choice(NAMES))
                await trio.sleep(self._random.expovariate(1 / self._pause_s))
            name = NAMES[0]
            if name in await self._look(client.admin):
                await self._delete(client.admin, name)
            await self._create(client.admin, name)
            await self._use(connection, (await self._look(client.admin))[name])

    async def _step(self, admin: Admin, connection: RpcConnection, name: str) -> None:
        topic = (await self._look(admin)).get(name)
        if topic is None:
            await self._create(admin, name)
            return
        await self._use(connection, topic)
        if self._random.random() < _DELETES:
            await self._delete(admin, name)
            if self._random.random() < _HAUNTS:
                await self._haunt(connection, topic)

    async def _look(self, admin: Admin) -> dict[str, TopicDescription]:
        asked_at = trio.current_time()
        topics = {topic.name: topic for topic in await admin.describe_topics()}
        ids = {name: topic.topic_id for name, topic in topics.items()}
        self._run_history.topics_seen(ids, asked_at)
        return topics

    async def _create(self, admin: Admin, name: str) -> None:
        change = TopicChange(name, is_creation=True, asked_at=trio.current_time())
        self._run_history.topic_changing(change)
        partition_count = self._random.randint(1, _PARTITIONS_MAX)
        try:
            reply = await admin.create_topic(name, partition_count, segment_bytes=4096)
        except TopicExistsError:
            return  # An earlier request has taken effect.
        except TidelogError:
            self._sometimes.reached("creation unknown")
            raise
        self._sometimes.reached("topic created")
        self._run_history.topic_changed(change, reply.topic_id)

    async def _delete(self, admin: Admin, name: str) -> None:
        change = TopicChange(name, is_creation=False, asked_at=trio.current_time())
        self._run_history.topic_changing(change)
        try:
            await admin.delete_topic(name)
        except UnknownTopicError:
            return
        except TidelogError:
            self._sometimes.reached("deletion of a topic unknown")
            raise
        self._sometimes.reached("topic deleted")
        self._run_history.topic_changed(change, None)

    async def _use(self, connection: RpcConnection, topic: TopicDescription) -> None:
        """Write to a topic once, and read all of its records."""
        writer = self._writers.get(topic.topic_id) or self._writer(topic)
        with trio.fail_after(PATIENCE_S):
            await writer.write(connection)
            self._producer_id = writer.producer_id
            reader = RawReader(
                self._name,
                self._run_history,
                self._sometimes,
                topic_id=topic.topic_id,
                partition_count=len(topic.partitions),
            )
            reader.should_stop = True
            await reader.read(connection)

    async def _haunt(self, connection: RpcConnection, topic: TopicDescription) -> None:
        """Write to a deleted topic."""
        writer = self._writers[topic.topic_id]
        refusal = await writer.haunt(connection)
        if refusal is None:
            raise ViolationError("TopicsStay", f"{topic.name} accepts records, but was deleted")
        if isinstance(refusal, UnknownTopicIdError):
            self._sometimes.reached("ghost refused")

    def _writer(self, topic: TopicDescription) -> RawWriter:
        writer = RawWriter(
            _PRODUCER,
            Values(
                self._name,
                _PRODUCER,
                self._random,
                partition_count=len(topic.partitions),
                first_number=self._run_history.numbers.first(topic.topic_id),
            ),
            self._run_history,
            sometimes=self._sometimes,
            topic_id=topic.topic_id,
        )
        writer.producer_id = self._producer_id
        writer.should_stop = True
        self._writers[topic.topic_id] = writer
        return writer
