"""Tests of messages that have to be read from the disk."""

from trio.testing import MockClock

from tests.broker.asking import batch_of, produce
from tests.broker.queues.asking import (
    create_queue,
    receive,
    received,
    states,
    submit_receive,
    topic_of,
)
from tests.broker.world import World
from tests.broker.world import settle as let_happen


async def test_messages_are_taken_when_they_have_been_read(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        for value in (b"a", b"b", b"c"):
            await produce(client, topic_of(broker), batch_of(value))

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert await receive(client, queue, 1, visibility_timeout_ms=0)  # All is loaded.
        world.work.hold_reads()
        first = submit_receive(client, queue, 2)
        second = submit_receive(client, queue, 2)
        await let_happen()
        assert not first.is_answered

        world.work.let_all_read()

        assert len(await received(first)) + len(await received(second)) == 3


async def test_a_receive_whose_client_is_gone_takes_nothing(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert await states(client, queue) == (1, 0, 0, 0)
        world.work.hold_reads()
        async with world.client() as hasty:
            submit_receive(hasty, queue)
            await let_happen()
        await let_happen()

        world.work.let_all_read()
        await let_happen()

        assert await states(client, queue) == (1, 0, 0, 0)
