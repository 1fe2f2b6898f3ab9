"""Tests of the queue server: finding queue partitions, and waiting there."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

# Reads private state of brokers.
# pyright: reportPrivateUsage=false
import gc
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, produce, submit
from tests.broker.queues.queue_requests import (
    create_queue,
    receive,
    received,
    states,
    submit_receive,
    topic_of,
)
from tests.broker.world import World
from tests.broker.world import settle as let_happen
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.server import Broker
from tidelog.wire.errors import UnknownPartitionError, UnknownQueueError, UnknownTopicIdError
from tidelog.wire.messages.queue_admin import DeleteQueueRequest
from tidelog.wire.protocol import api


def journal(broker: Broker, queue_id: bytes) -> Partition:
    assert broker._partitions is not None
    found = broker._partitions.replica(queue_id, 0)
    assert found is not None
    return found


async def test_an_idle_queue_is_unloaded(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await receive(client, queue, 1)
        assert journal(broker, queue).watchers

        await world.pass_time(1300)
        await world.pass_time(1300)

        assert not journal(broker, queue).watchers
        again = await receive(client, queue)
        assert sorted((each.offset, each.receive_count) for each in again) == [(0, 2), (1, 1)]


@pytest.mark.statement("b89")
async def test_a_deleted_queue_wakes_its_waiting_receives(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()

        await submit(client, api.DELETE_QUEUE, DeleteQueueRequest("orders")).reply()

        with pytest.raises(UnknownQueueError, match="was deleted"):
            await received(pending)
        with pytest.raises(UnknownQueueError):
            await receive(client, queue)


async def test_a_queue_that_is_not_known_yet_is_retriable(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)

        with pytest.raises(UnknownTopicIdError):
            await receive(client, b"another queue...")
        with pytest.raises(UnknownPartitionError):
            await receive(client, queue, partitions=(1,))


async def test_a_queue_that_was_only_counted_is_unloaded_soon(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        counted = await create_queue(broker)
        used = await create_queue(broker, "used", topic="used")
        await receive(client, used)

        for queue in (counted, used):
            assert await states(client, queue) == (0, 0, 0, 0)
        assert journal(broker, counted).watchers
        for _ in range(3):
            await world.pass_time(4)

        assert not journal(broker, counted).watchers
        assert journal(broker, used).watchers


async def test_a_new_queue_is_served_and_empty(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)

        assert await receive(client, queue) == []
        assert await states(client, queue) == (0, 0, 0, 0)


QUEUES = 80


@contextmanager
def traced() -> Generator[None]:
    gc.collect()
    tracemalloc.start(1)
    try:
        yield
    finally:
        tracemalloc.stop()


async def test_a_loaded_queue_partition_takes_less_than_ten_kilobytes(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_queue(broker, "first", topic="orders", partitions=1)
        queues = [await create_queue(broker, f"q{number}") for number in range(QUEUES)]
        # Objects that exist once, whatever the number of queues.
        await states(client, queues.pop())

        with traced():
            before, _ = tracemalloc.get_traced_memory()
            for queue in queues:
                assert await states(client, queue) == (0, 0, 0, 0)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()

            assert (after - before) / len(queues) < 10_000

            for _ in range(3):
                await world.pass_time(10)
            world.events.clear()
            gc.collect()
            forgotten, _ = tracemalloc.get_traced_memory()

        # The log of the journal stays open, and the disk of this test keeps its files in memory.
        assert (forgotten - before) / len(queues) < 6_000
