"""Tests of what a leader knows of sends, and of where it has that from."""

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, delete_records, produce, submit
from tests.broker.queues.queue_requests import create_queue, outgoing, purge, send, topic_of
from tests.broker.world import World
from tidelog.wire.errors import CorruptRecordError
from tidelog.wire.messages.queues import GetPurgeOffsetRequest
from tidelog.wire.protocol import api


async def test_what_was_deleted_from_the_log_is_no_original(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"))
        await send(client, queue, (b"b", "2"))
        await delete_records(client, topic_of(broker), 1)

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert (await send(client, queue, (b"b", "2"))).offsets == [1]


async def test_what_nobody_sends_to_is_forgotten_and_read_again(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True, deduplication_window_ms="1h")
        await send(client, queue, (b"a", "1"))
        await world.pass_time(3 * 3600)
        await send(client, queue, (b"b", "2"))
        assert (await send(client, queue, (b"b", "2"))).offsets == [1]


async def test_while_the_young_part_of_the_log_is_damaged_nothing_is_sent(
    mock_clock: MockClock,
) -> None:
    """What cannot be read may be what was sent before: better no send than one sent twice."""
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        for value in (b"first", b"second", b"third"):
            await send(client, queue, (value * 9, value.decode()))

    world = world.after_crash()
    path = next(path for path, data in world.segments() if b"second" in data)
    world.disk.damage(path, world.disk.visible_bytes(path).index(b"second"), b"damage")
    async with world.broker(), world.client() as client:
        with pytest.raises(CorruptRecordError):
            await send(client, queue, (b"new", "new"))


async def test_what_others_appended_is_read_over(mock_clock: MockClock) -> None:
    """Also what looks as if it were of a queue, and what nobody can read."""
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        topic = topic_of(broker)
        await produce(client, topic, batch_of(b"plain"))
        await produce(client, topic, outgoing(queue, (b"forged", "1")))
        await send(client, queue, (b"a", "2"))

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert (await send(client, queue, (b"b", "1"), (b"c", "2"))).offsets == [3, 2]


async def test_whoever_does_not_lead_the_journal_asks_where_it_was_purged(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"), (b"b", "2"))
        await purge(client, queue)
        request = GetPurgeOffsetRequest(queue, 0)

        assert (await submit(client, api.GET_PURGE_OFFSET, request).reply()).below_offset == 2
