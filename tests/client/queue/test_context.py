"""All queues of a client send through one producer."""

import trio
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.worlds import client_of
from tidelog.client.producer.producer import Producer
from tidelog.client.queue.context import QueueShared


async def test_the_producer_is_opened_once(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        shared = QueueShared(vars(client)["_queues"].cluster)
        found: list[Producer] = []

        async def ask() -> None:
            found.append(await shared.producer())

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        assert len(set(map(id, found))) == 1
        await client.admin.create_topic("orders")
        assert (await found[0].send("orders", b"v")).offset == 0
