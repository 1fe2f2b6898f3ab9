"""Tests of dispatch from requests to handlers; every API has a handler."""


# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from typing import final

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic, produce, submit
from tests.broker.queues.queue_requests import create_queue, receive, states
from tests.broker.world import World
from tidelog.wire.errors import UnexpectedServerError
from tidelog.wire.messages.handshake import HelloRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import InitProducerRequest
from tidelog.wire.messages.topics import DescribeTopicsRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import APIS, ApiKey


async def test_a_slow_request_does_not_block_later_ones(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client)
        world.work.hold_work()
        slow = submit(client, api.INIT_PRODUCER, InitProducerRequest())

        await submit(client, api.METADATA, MetadataRequest(None)).reply()
        await submit(client, api.DESCRIBE_TOPICS, DescribeTopicsRequest(None)).reply()
        await submit(client, api.HELLO, HelloRequest("again", "0")).reply()

        assert not slow.is_answered
        world.work.let_all()
        assert (await slow.reply()).producer_id >= 1


async def test_a_defect_in_a_slow_request_is_answered_and_affects_no_other_request(
    mock_clock: MockClock, defects: list[str]
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        world.clock.defect = NoSuchLuckError()

        with pytest.raises(UnexpectedServerError, match="NoSuchLuckError"):
            await create_topic(client, "other")

        world.clock.defect = None
        assert "NoSuchLuckError" in defects.pop()
        await produce(client, topic, batch_of(b"a"))
        await create_topic(client, "other")


@final
class NoSuchLuckError(Exception):
    """A defect."""


async def test_every_offered_api_is_served(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        assert client.hello is not None
        offered = {each.api_key: each for each in client.hello.apis}

        assert set(offered) == set(ApiKey)
        dispatcher = broker._dispatcher
        served_keys = {**dispatcher._of_all, **dispatcher._of_nodes, **dispatcher._of_clients}
        assert set(served_keys) == set(ApiKey)
        spoken = {served.key: (served.min_version, served.max_version) for served in APIS}
        assert spoken == {
            key: (each.min_version, each.max_version) for key, each in offered.items()
        }


async def test_a_new_queue_is_served_and_empty(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)

        assert await receive(client, queue) == []
        assert await states(client, queue) == (0, 0, 0, 0)
