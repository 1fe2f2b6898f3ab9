"""Tests of what queues are served with."""

from trio.testing import MockClock

from tests.broker.queues.asking import create_queue, receive, states
from tests.broker.world import World


async def test_a_new_queue_is_served_and_empty(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)

        assert await receive(client, queue) == []
        assert await states(client, queue) == (0, 0, 0, 0)
