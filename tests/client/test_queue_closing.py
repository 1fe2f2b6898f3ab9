"""Close of a client that receives: messages that still arrive are returned to their queue."""

# Reads private state of clients.
# pyright: reportPrivateUsage=false

import signal
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import ADDRESS, World
from tests.client.clients import client_of
from tests.client.crashes import SEED, scene
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


async def share_a_receive(queue: Queue, nursery: trio.Nursery) -> None:
    """Start receives for which a task of the client asks."""

    async def receive() -> None:
        with pytest.raises(ClosedError):
            await queue.receive(wait=20)

    async with trio.open_nursery() as asking:
        asking.start_soon(partial(queue.receive, wait=20))
        await trio.sleep(0.1)
        for _ in range(2):
            nursery.start_soon(receive)
        await trio.sleep(0.1)
        asking.cancel_scope.cancel()
    await trio.sleep(1)


@pytest.mark.parametrize("has_broker", [True, False], ids=["idle", "no-broker"])
async def test_receives_that_share_a_request_do_not_delay_the_close(
    autojump_clock: MockClock, *, has_broker: bool
) -> None:
    async with scene(autojump_clock) as (other, stage), trio.open_nursery() as nursery:
        await made(other, "work")
        async with connect(SEED, env=stage.env) as client:
            await share_a_receive(client.queue("work"), nursery)
            if not has_broker:
                await stage.crash()
                await trio.sleep(1)
            ends_at = trio.current_time()
        assert trio.current_time() == ends_at


async def test_a_shared_receive_that_tries_again_at_the_close_ends(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (other, stage), trio.open_nursery() as nursery:
        await made(other, "work")
        for _ in range(10):  # The order of the tasks of a turn is random.
            async with connect(SEED, env=stage.env) as client:
                await share_a_receive(client.queue("work"), nursery)
                stage.network.reset_all()
                await trio.testing.wait_all_tasks_blocked()
                await trio.sleep_until(client._cluster.tasks._times[0])


def test_an_interrupt_of_the_close_is_raised_by_itself() -> None:
    @trio.lowlevel.enable_ki_protection
    async def interrupt() -> None:
        await trio.sleep(0.5)
        signal.raise_signal(signal.SIGINT)

    async def receive_and_close(world: World) -> None:
        async with connect(SEED, env=world.env) as client:
            with trio.move_on_after(1):
                await client.queue("work").receive()
            trio.lowlevel.spawn_system_task(interrupt)

    async def run() -> None:
        world = World(clock)
        async with client_of(world) as other:
            queue = await made(other, "work", receive_acks="all")
            await queue.send(b"message")
            world.work.hold_syncs()  # The reply to the receive waits for the commit of its lease.
            with pytest.raises(KeyboardInterrupt):
                await receive_and_close(world)
            world.work.let_all_sync()

    clock = MockClock(autojump_threshold=0)
    trio.run(run, clock=clock)
