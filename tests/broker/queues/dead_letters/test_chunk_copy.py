"""Tests of large messages that are moved to another topic."""

import errno

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, delete_records, fetch_all, list_offset, produce
from tests.broker.queues.chunks import BODY, LENGTH, PARTS, chunk, message
from tests.broker.queues.dead_letters.dead_letter_fixture import (
    dead_letter_queue,
    headers_at,
    let_move,
)
from tests.broker.queues.queue_requests import (
    receive,
    received,
    settle,
    states,
    submit_receive,
    topic_of,
)
from tidelog.wire.batch.large_messages import ChunkMap, chunks_of
from tidelog.wire.messages.queues import SettleAction


async def test_a_dead_letter_is_moved_with_its_chunks(
    mock_clock: MockClock,
) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, dead, queue):
        topic, there = topic_of(broker), topic_of(broker, "dead")
        await produce(client, there, batch_of(b"something"))
        for index in (0, 1):
            await produce(client, topic, chunk(index))
        await produce(client, topic, batch_of(b"in between"))
        await produce(client, topic, chunk(2))
        await produce(client, topic, message((0, 2), (3, 1)))
        messages = await receive(client, queue)
        await settle(client, queue, messages[:1])

        await settle(client, queue, messages[1:], action=SettleAction.REJECT)
        await let_move(world, 20)

        assert await states(client, queue) == (0, 0, 0, 0)
        letters = await received(submit_receive(client, dead, max_wait_ms=10_000))
        assert [m.offset for m in letters] == [0, 4]
        records = await fetch_all(client, there)
        assert [r.value for r in records] == [b"something", *PARTS, b""]
        headers = await headers_at(client, there, 4)
        assert chunks_of(headers.items()) == ChunkMap(BODY, LENGTH, ((1, 3),))
        assert headers["kept"] == b"yes"


@pytest.mark.statement("b54")
async def test_copied_chunks_are_as_new_as_their_message(mock_clock: MockClock) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, _, queue):
        topic, there = topic_of(broker), topic_of(broker, "dead")
        for index in range(3):
            await produce(client, topic, chunk(index))
        await produce(client, topic, message((0, 3)))
        await world.pass_time(3600)
        moved_ms = world.clock.now_ms()

        await settle(client, queue, await receive(client, queue), action=SettleAction.REJECT)
        await let_move(world, 20)

        assert len(await fetch_all(client, there)) == 4
        assert (await list_offset(client, there, moved_ms)).offset == 0


async def test_chunks_at_a_target_are_not_copied_again_after_a_failure(
    mock_clock: MockClock,
) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, _, queue):
        topic, there = topic_of(broker), topic_of(broker, "dead")
        for index in range(3):
            await produce(client, topic, chunk(index))
        await produce(client, topic, message((0, 3)))
        (path,) = {path for path, _ in world.segments() if path.startswith("topics/dead")}
        world.disk.fail("write_at", path=path, error_number=errno.ENOSPC, nth=2, count=2)

        await settle(client, queue, await receive(client, queue), action=SettleAction.REJECT)
        await let_move(world, 20)

        assert [r.value for r in await fetch_all(client, there)] == [*PARTS, b""]
        assert await states(client, queue) == (0, 0, 0, 0)


async def test_a_dead_letter_whose_chunks_were_deleted_is_moved_without_them(
    mock_clock: MockClock,
) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, _, queue):
        topic, there = topic_of(broker), topic_of(broker, "dead")
        for index in range(3):
            await produce(client, topic, chunk(index))
        await produce(client, topic, message((0, 3)))
        await delete_records(client, topic, 2)

        await settle(client, queue, await receive(client, queue), action=SettleAction.REJECT)
        await let_move(world, 20)

        assert len(await fetch_all(client, there)) == 1
        headers = await headers_at(client, there, 0)
        assert chunks_of(headers.items()) == ChunkMap(BODY, LENGTH, ())
