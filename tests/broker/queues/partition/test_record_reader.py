"""Tests of messages that have to be read from the disk."""

import pytest
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
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import CorruptRecordError


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


@pytest.mark.parametrize("is_fifo", [False, True])
async def test_messages_in_a_damaged_batch_are_passed_over_unless_there_is_an_order(
    mock_clock: MockClock,
    *,
    is_fifo: bool,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=is_fifo)
        for value in (b"first", b"second", b"third"):
            columns = Columns(1, keys=[b"k"], values=[value])
            batch = encode_batch(columns, first_timestamp_ms=START_MS)
            await produce(client, topic_of(broker), batch)
    (path,) = (path for path, data in world.segments() if b"second" in data)
    world.disk.damage(path, world.disk.visible_bytes(path).index(b"second"), b"damage")

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        received_values = [each.value for each in await receive(client, queue)]

        assert received_values == ([b"first"] if is_fifo else [b"first", b"third"])
        if not is_fifo:
            with pytest.raises(CorruptRecordError):
                await receive(client, queue)


async def test_a_lease_that_ends_while_something_is_read_keeps_no_broker_busy(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        await receive(client, queue, visibility_timeout_ms=10_000)
        waits = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()
        ((path, _),) = [found for found in world.segments() if "queue@" not in found[0]]
        world.disk.cold_paths.add(path)
        world.work.hold_reads()
        await produce(client, topic_of(broker), batch_of(b"b"))

        await world.pass_time(11)  # It would not end if tasks were busy for ever.

        assert not waits.is_answered
        world.work.let_all_read()
        assert [each.value for each in await received(waits)] == [b"a", b"b"]
