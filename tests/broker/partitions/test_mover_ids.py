"""Tests of which producers are those of queues."""

# Looks into brokers, which nobody else has to.
# pyright: reportPrivateUsage=false

from trio.testing import MockClock

from tests.broker.asking import submit
from tests.broker.queues.asking import create_queue
from tests.broker.world import World
from tidelog.broker.partitions.mover_ids import MoverIds, producer_id_of
from tidelog.wire.messages.queue_admin import DeleteQueueRequest
from tidelog.wire.protocol import api


async def test_a_producer_of_a_queue_is_one_as_long_as_the_queue_is_there(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        assert broker._cluster is not None
        metadata = broker._cluster.metadata
        movers = MoverIds(lambda: metadata.state.catalog)
        queue = await create_queue(broker, partitions=2)

        assert movers.is_one(producer_id_of(queue, 0))
        assert movers.is_one(producer_id_of(queue, 1))
        assert not movers.is_one(producer_id_of(queue, 2))
        assert not movers.is_one(7)

        await submit(client, api.DELETE_QUEUE, DeleteQueueRequest("orders")).reply()
        assert not movers.is_one(producer_id_of(queue, 0))
