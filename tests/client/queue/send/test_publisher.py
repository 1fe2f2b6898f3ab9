"""Which messages a queue takes and the producer they share, by a real broker on virtual time."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.queue_world import values, work_queue
from tests.client.worlds import client_of
from tidelog.client.producer.producer import Producer
from tidelog.client.queue.context import QueueContext
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.errors import InvalidRequestError


async def test_a_queue_without_lanes_takes_no_priorities_and_nothing_is_sent(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        with pytest.raises(InvalidRequestError, match="no priorities; it needs `priority_weights`"):
            await queue.send(b"urgent", priority=0)
        with pytest.raises(InvalidRequestError, match="no priorities"):
            await queue.send_batch([b"plain", OutgoingMessage(value=b"urgent", priority=0)])
        assert await queue.receive(wait=0) == []

        await client.admin.alter_queue("work", set={"priority_weights": "2,1"})

        await queue.send(b"later", priority=1)
        await queue.send(b"urgent", priority=0)
        assert values(await queue.receive()) == [b"later", b"urgent"]


async def test_the_producer_is_opened_once(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        shared = QueueContext(vars(client)["_queues"].cluster)
        found: list[Producer] = []

        async def ask() -> None:
            found.append(await shared.producer.get())

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        assert len(set(map(id, found))) == 1
        await client.admin.create_topic("orders")
        assert (await found[0].send("orders", b"v")).offset == 0
