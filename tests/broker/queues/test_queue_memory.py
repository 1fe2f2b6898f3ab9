"""What queues that nobody uses cost a broker."""

# Looks into brokers, which nobody else has to.
# pyright: reportPrivateUsage=false

import gc
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager

from trio.testing import MockClock

from tests.broker.queues.asking import create_queue, states
from tests.broker.world import World

QUEUES = 40


@contextmanager
def traced() -> Generator[None]:
    gc.collect()
    tracemalloc.start(1)
    try:
        yield
    finally:
        tracemalloc.stop()


async def test_a_partition_of_a_queue_takes_less_than_ten_kilobytes_while_it_is_loaded(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_queue(broker, "first", topic="orders", partitions=1)
        queues = [await create_queue(broker, f"q{number}") for number in range(QUEUES)]
        await states(client, queues.pop())  # What is made once, whatever the number of queues.

        with traced():
            before, _ = tracemalloc.get_traced_memory()
            for queue in queues:
                assert await states(client, queue) == (0, 0, 0, 0)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()

            assert (after - before) / len(queues) < 10_000

            for _ in range(3):
                await world.pass_time(10)
            gc.collect()
            forgotten, _ = tracemalloc.get_traced_memory()

        # The log of the journal is kept, and what the disk of this test has of it.
        assert (forgotten - before) / len(queues) < 6_000
