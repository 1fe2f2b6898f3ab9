"""Close of a client that receives: messages that still arrive are returned to their queue."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import ADDRESS, World
from tests.client.clients import client_of
from tests.client.queue_fixture import left, made
from tidelog.client.client import connect
from tidelog.client.errors import ClosedError
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.send.message_fields import MessageFields

RECEIVERS = 3


@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "waiting"])
@pytest.mark.parametrize("fifo", [True, False], ids=["fifo", "standard"])
async def test_a_message_that_arrives_while_a_client_closes_stays_visible(
    autojump_clock: MockClock, *, fifo: bool, is_cancelled: bool
) -> None:
    world = World(autojump_clock)
    fields = MessageFields(group=b"a") if fifo else MessageFields()
    scopes: list[trio.CancelScope] = []
    received_count = 0

    async def receive(queue: Queue) -> None:
        nonlocal received_count
        with trio.CancelScope() as scope:
            scopes.append(scope)
            try:
                received_count += len(await queue.receive(wait=20))
            except ClosedError:
                assert not is_cancelled

    async with client_of(world) as other:
        queue = await made(other, "work", fifo=fifo, visibility_timeout=600)
        for turn_count in range(40):
            received_count = 0
            async with (
                trio.open_nursery() as nursery,
                connect("{}:{}".format(*ADDRESS), env=world.env) as client,
            ):
                for _ in range(RECEIVERS):
                    nursery.start_soon(receive, client.queue("work"))
                await trio.sleep(1)
                if is_cancelled:
                    for scope in scopes:
                        scope.cancel()
                    await trio.sleep(1)
                nursery.start_soon(_send, queue, fields)
                for _ in range(turn_count):
                    await trio.lowlevel.checkpoint()

            assert (await left(queue))[1] == received_count, turn_count
            await queue.purge()


async def _send(queue: Queue, fields: MessageFields) -> None:
    await queue.send(b"message", **fields)


async def test_a_client_without_receives_is_closed_at_once(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as other:
        queue = await made(other, "work")
        await queue.send(b"message")
        async with connect("{}:{}".format(*ADDRESS), env=world.env) as client:
            (message,) = await client.queue("work").receive()
            await message.delete()
            ends_at = trio.current_time()
        assert trio.current_time() == ends_at
        assert await left(queue) == (0, 0)
