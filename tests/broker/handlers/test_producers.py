"""Tests of asking how far producers are."""

import pytest
from trio.testing import MockClock

from tests.broker.asking import batch_of, create_topic, produce, submit, submit_produce
from tests.broker.world import World, settle
from tidelog.wire.errors import UnknownTopicIdError
from tidelog.wire.messages.produce import DescribeProducerReply, DescribeProducerRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.rpc import RpcConnection


async def described(client: RpcConnection, topic: bytes) -> DescribeProducerReply:
    request = DescribeProducerRequest(topic, 0, 7)
    return await submit(client, api.DESCRIBE_PRODUCER, request).reply()


async def test_a_partition_knows_how_far_a_producer_is(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        assert await described(client, topic) == DescribeProducerReply(None, None)

        await produce(client, topic, batch_of(b"a", b"b", producer_id=7, epoch=2))

        assert await described(client, topic) == DescribeProducerReply(2, 2)
        with pytest.raises(UnknownTopicIdError):
            await described(client, b"another topic...")


async def test_the_answer_waits_until_all_is_committed_that_it_rests_on(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        world.work.hold_syncs()
        submit_produce(client, topic, batch_of(b"a", producer_id=7))
        await settle()

        pending = submit(client, api.DESCRIBE_PRODUCER, DescribeProducerRequest(topic, 0, 7))
        await settle()
        assert not pending.is_answered
        world.work.let_all_sync()

        assert await pending.reply() == DescribeProducerReply(0, 1)
