"""Tests of producing from one broker to whoever leads."""

# Looks into brokers, which nobody else has to.
# pyright: reportPrivateUsage=false

import pytest
from trio.testing import MockClock

from tests.broker.asking import batch_of, create_topic, delete_topic, fetch_all
from tests.broker.world import World
from tidelog.broker.queues.dead_letters.topic_producer import TopicProducer
from tidelog.wire.errors import LeaderNotAvailableError, UnknownTopicError


async def test_a_batch_is_committed_when_it_was_produced(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        assert broker._cluster is not None
        producer = TopicProducer(broker._cluster)

        await producer.produce((topic, 0), batch_of(b"a"))

        assert producer.topic_name(topic) == "orders"
        assert [record.value for record in await fetch_all(client, topic)] == [b"a"]


async def test_a_topic_that_was_deleted_is_told_from_one_without_leader(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        await delete_topic(client)
        assert broker._cluster is not None
        producer = TopicProducer(broker._cluster)

        with pytest.raises(UnknownTopicError):
            await producer.produce((topic, 0), batch_of(b"a"))
        with pytest.raises(LeaderNotAvailableError):
            await producer.produce((b"another topic...", 0), batch_of(b"a"))
