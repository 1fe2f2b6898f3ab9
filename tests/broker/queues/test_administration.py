"""Tests of counting, purging and seeking."""

from trio.testing import MockClock

from tests.broker.asking import batch_of, produce
from tests.broker.queues.asking import (
    count,
    create_queue,
    purge,
    receive,
    received,
    seek,
    settle,
    states,
    submit_receive,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen

TIMEOUT_S = 30


async def test_a_purge_does_away_with_everything(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        await receive(client, queue, 1)

        assert await purge(client, queue) == 3

        assert await states(client, queue) == (0, 0, 0, 0)
        await produce(client, topic_of(broker), batch_of(b"d"))
        assert [each.value for each in await receive(client, queue)] == [b"d"]


async def test_a_seek_hands_out_again_what_is_in_the_log(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        await settle(client, queue, await receive(client, queue))
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()

        assert await seek(client, queue, 1) == 2

        again = await received(pending)
        assert [(each.value, each.receive_count) for each in again] == [(b"b", 1), (b"c", 1)]


async def test_the_oldest_message_is_known_by_its_time(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", at_ms=START_MS - 7))

        assert (await count(client, queue)).oldest_timestamp_ms == START_MS - 7
