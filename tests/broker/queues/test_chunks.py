"""Tests of the chunks of large messages: records that are no messages."""

from typing import Any

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, produce
from tests.broker.queues.chunks import BODY, chunk, message
from tests.broker.queues.queue_requests import (
    count,
    create_queue,
    peek,
    receive,
    seek,
    settle,
    states,
    topic_of,
)
from tests.broker.world import START_MS, World
from tidelog.wire.batch.large_messages import chunk_header
from tidelog.wire.batch.record_batch import Columns, encode_batch, parse_header


def test_a_batch_of_chunks_is_marked_in_its_header() -> None:
    mixed = Columns(2, values=[b"a", b"b"], headers=[(chunk_header(BODY, 0),), ()])

    for batch, has_only_chunks in (
        (chunk(0), True),
        (message((0, 3)), False),
        (encode_batch(mixed, first_timestamp_ms=START_MS), False),
        (batch_of(b"a"), False),
    ):
        header = parse_header(batch)
        assert header is not None
        assert header.has_only_chunks is has_only_chunks


@pytest.mark.parametrize("is_fifo", [False, True])
async def test_chunks_are_no_messages_of_any_queue(mock_clock: MockClock, *, is_fifo: bool) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=is_fifo)
        topic = topic_of(broker)
        await produce(client, topic, batch_of(b"before"))
        for index in range(3):
            await produce(client, topic, chunk(index))
        assert await states(client, queue) == (1, 0, 0, 0)
        assert [m.value for m in await receive(client, queue)] == [b"before"]
        await produce(client, topic, message((1, 3), key=b"k"))
        await produce(client, topic, batch_of(b"after"))

        messages = await receive(client, queue)

        assert [m.offset for m in messages] == [4, 5]
        assert [run.first_offset for run in (await peek(client, queue)).runs] == [0, 4]
        await settle(client, queue, messages)
        assert await states(client, queue) == (0, 1, 0, 0)
        assert await seek(client, queue, 1) == 2


async def test_chunks_in_a_batch_with_messages_are_no_messages_either(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    mixed = Columns(3, values=[b"a", b"b", b"c"], headers=[(), (chunk_header(BODY, 0),), ()])
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        batch = encode_batch(mixed, first_timestamp_ms=START_MS)
        await produce(client, topic_of(broker), batch)

        assert [m.offset for m in await receive(client, queue)] == [0, 2]


async def test_chunks_of_a_lost_sender_do_not_block_a_queue(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        topic = topic_of(broker)
        await produce(client, topic, chunk(0))
        await produce(client, topic, chunk(1))
        await produce(client, topic, batch_of(b"of another sender"))

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        messages = await receive(client, queue)
        assert [m.offset for m in messages] == [2]
        await settle(client, queue, messages)
        assert await states(client, queue) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    "settings", [{}, {"is_fifo": True}, {"priority_weights": "2,1"}, {"fair_delivery": "on"}]
)
async def test_chunks_of_a_failed_send_count_in_no_number_of_a_queue(
    mock_clock: MockClock, settings: dict[str, Any]
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, **settings)
        topic = topic_of(broker)
        await produce(client, topic, chunk(0))
        await produce(client, topic, chunk(1))
        await world.pass_time(3600)
        empty = await count(client, queue)
        assert (empty.visible, empty.oldest_timestamp_ms, empty.oldest_age_ms) == (0, None, None)
        assert (await peek(client, queue)).runs == []
        assert await receive(client, queue) == []

        now_ms = world.clock.now_ms()
        await produce(client, topic, batch_of(b"a message", at_ms=now_ms))
        await produce(client, topic, chunk(2))
        await world.pass_time(5)

        counts = await count(client, queue)
        assert (counts.visible, counts.oldest_timestamp_ms) == (1, now_ms)
        assert counts.oldest_age_ms == 5000
        assert [run.first_offset for run in (await peek(client, queue)).runs] == [2]
        (received,) = await receive(client, queue)
        assert received.offset == 2
        counts = await count(client, queue)
        assert (counts.in_flight, counts.oldest_age_ms) == (1, 5000)
