"""Tests of counting, purging and seeking."""

import pytest
from trio.testing import MockClock

from tests.broker.asking import batch_of, produce, submit
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
from wire import api
from wire.error_code import ErrorCode
from wire.errors import InvalidRequestError
from wire.queues import CancelRequest

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


async def test_a_delayed_message_that_is_cancelled_is_never_delivered(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, delivery_delay_ms="1d")
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        reply = await submit(client, api.CANCEL, CancelRequest(queue, 0, [(1, 1), (7, 1)])).reply()
        (refused,) = reply.refused
        assert (refused.runs, refused.error.code) == ([(7, 1)], ErrorCode.MESSAGE_GONE)
        for runs in ([(1, 0)], [(-1, 1)], [(0, 2), (1, 1)]):
            with pytest.raises(InvalidRequestError):
                await submit(client, api.CANCEL, CancelRequest(queue, 0, runs)).reply()

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        await world.pass_time(86_400)
        assert [each.value for each in await receive(client, queue)] == [b"a", b"c"]
        reply = await submit(client, api.CANCEL, CancelRequest(queue, 0, [(0, 1)])).reply()
        assert reply.refused[0].error.code == ErrorCode.RECEIPT_EXPIRED
