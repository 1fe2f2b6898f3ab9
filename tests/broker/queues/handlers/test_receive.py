"""Tests of receiving and settling over the wire, with one broker."""

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, produce
from tests.broker.queues.queue_requests import (
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

TIMEOUT_S = 30


async def test_what_was_received_nobody_else_gets_until_its_time_is_over(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))

        first = await receive(client, queue, 2)
        second = await receive(client, queue)
        third = await receive(client, queue)

        assert [message.value for message in first] == [b"a", b"b"]
        assert [message.value for message in second] == [b"c"]
        assert third == []
        await world.pass_time(TIMEOUT_S)
        again = await receive(client, queue)
        assert [(each.value, each.receive_count) for each in again] == [
            (b"a", 2),
            (b"b", 2),
            (b"c", 2),
        ]


@pytest.mark.statement("b17")
async def test_a_receive_that_waits_gets_what_is_sent(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()
        assert not pending.is_answered

        await produce(client, topic_of(broker), batch_of(b"a"))

        assert [message.value for message in await received(pending)] == [b"a"]
        assert broker.statistics().waiting_count == 0


@pytest.mark.statement("b18")
async def test_a_send_wakes_as_many_receives_as_there_are_messages_for(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        pending = [submit_receive(client, queue, 1, max_wait_ms=60_000) for _ in range(5)]
        await let_happen()

        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await let_happen()

        assert [each.is_answered for each in pending] == [True, True, False, False, False]
        await world.pass_time(TIMEOUT_S)
        assert [each.is_answered for each in pending] == [True] * 4 + [False]
        assert [message.value for message in await received(pending[3])] == [b"b"]


async def test_who_asks_an_empty_queue_hears_at_once_also_when_old_messages_are_looked_for(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        await receive(client, queue, visibility_timeout_ms=3_600_000)
        assert await receive(client, queue) == []

        for _ in range(3):
            await world.pass_time(50)
            pending = submit_receive(client, queue)
            await let_happen()
            assert pending.is_answered


async def test_who_does_not_wait_hears_when_what_was_read_for_another_one_is_known(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        waiting = submit_receive(client, queue, max_wait_ms=600_000)
        await let_happen()

        for _ in range(3):
            await world.pass_time(50)
            pending = submit_receive(client, queue)
            await let_happen()
            assert pending.is_answered
        assert not waiting.is_answered


async def test_who_does_not_wait_hears_when_a_queue_is_loaded_for_which_others_wait(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker)

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        waiting = submit_receive(client, queue, max_wait_ms=600_000)
        pending = submit_receive(client, queue)
        await let_happen()
        assert pending.is_answered
        assert not waiting.is_answered


async def test_a_receive_that_waits_ends_with_nothing_when_its_time_is_over(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        pending = submit_receive(client, queue, max_wait_ms=5000)
        await let_happen()
        await world.pass_time(4.9)
        assert not pending.is_answered

        await world.pass_time(0.2)

        assert await received(pending) == []


async def test_what_nobody_hears_of_any_more_is_given_back(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, receive_acks="all")
        await produce(client, topic_of(broker), batch_of(b"a"))
        await states(client, queue)
        world.work.hold_syncs()
        async with world.client() as hasty:
            submit_receive(hasty, queue)
            await let_happen()
        await let_happen()
        world.work.let_all_sync()
        await let_happen()

        assert [each.receive_count for each in await receive(client, queue)] == [1]


async def test_an_attempt_is_repeated_though_nothing_else_is_visible(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        batch = encode_batch(Columns(1, keys=[b"k"], values=[b"v"]), first_timestamp_ms=START_MS)
        await produce(client, topic_of(broker), batch)
        first = await receive(client, queue, attempt_id=b"lost")

        again = await receive(client, queue, attempt_id=b"lost")

        assert [each.value for each in first] == [each.value for each in again] == [b"v"]
        assert [each.receive_count for each in again] == [1]


async def test_an_attempt_that_was_repeated_keeps_its_messages_when_its_first_asker_goes(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True, receive_acks="all")
        batch = encode_batch(Columns(1, keys=[b"k"], values=[b"v"]), first_timestamp_ms=START_MS)
        await produce(client, topic_of(broker), batch)
        await states(client, queue)
        world.work.hold_syncs()
        async with world.client() as lost:
            submit_receive(lost, queue, attempt_id=b"lost")
            await let_happen()
            again = submit_receive(client, queue, attempt_id=b"lost")
            await let_happen()
        await let_happen()
        world.work.let_all_sync()
        await let_happen()

        assert [each.value for each in await received(again)] == [b"v"]
        assert await receive(client, queue) == [], "nobody else has it as well"
