"""Tests that every API has its handler."""

# Looks into brokers, which nothing else has to.
# pyright: reportPrivateUsage=false

from trio.testing import MockClock

from tests.broker.queues.asking import create_queue, receive, states
from tests.broker.world import World
from tidelog.wire.protocol.api import APIS, ApiKey


async def test_every_api_that_is_offered_is_served(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        assert client.hello is not None
        offered = {each.api_key: each for each in client.hello.apis}

        assert set(offered) == set(ApiKey)
        assert broker._dispatcher.served_keys == set(ApiKey)
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
