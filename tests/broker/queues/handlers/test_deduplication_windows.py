"""Tests of deduplication windows, and of their reads from the log."""

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, delete_records, produce, submit
from tests.broker.queues.queue_requests import create_queue, outgoing, purge, send, topic_of
from tests.broker.world import World
from tidelog.wire.errors import CorruptRecordError
from tidelog.wire.messages.queues import GetPurgeOffsetRequest
from tidelog.wire.protocol import api


async def test_a_message_deleted_from_the_log_is_no_original(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"))
        await send(client, queue, (b"b", "2"))
        await delete_records(client, topic_of(broker), 1)

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert (await send(client, queue, (b"b", "2"))).offsets == [1]


async def test_an_idle_deduplication_window_is_dropped_and_read_again(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True, deduplication_window_ms="1h")
        await send(client, queue, (b"a", "1"))
        await world.pass_time(3 * 3600)
        await send(client, queue, (b"b", "2"))
        assert (await send(client, queue, (b"b", "2"))).offsets == [1]


async def test_sends_are_refused_while_the_window_in_the_log_is_damaged(
    mock_clock: MockClock,
) -> None:
    """Damaged records may be earlier sends of the message: better no send than a duplicate."""
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


async def test_batches_of_other_producers_are_skipped(mock_clock: MockClock) -> None:
    """Also those that look like sends, and those that cannot be decoded."""
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


async def test_a_broker_without_the_journal_asks_its_leader_for_the_purge_offset(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"), (b"b", "2"))
        await purge(client, queue)
        request = GetPurgeOffsetRequest(queue, 0)

        assert (await submit(client, api.GET_PURGE_OFFSET, request).reply()).below_offset == 2
