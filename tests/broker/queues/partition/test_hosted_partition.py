"""Tests of a hosted queue partition, from its load on."""

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, delete_records, produce, submit
from tests.broker.queues.queue_requests import (
    create_queue,
    hosted_of,
    receive,
    received,
    settle,
    states,
    submit_receive,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from tidelog.broker.queues.partition import hosted_partition
from tidelog.queue_layer.state import queue_state
from tidelog.wire.messages.queue_admin import AlterQueueRequest
from tidelog.wire.protocol import api

TIMEOUT_S = 30


async def test_a_restarted_broker_continues_the_queue_from_its_journal(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c", b"d"))
        first = await receive(client, queue, 2)
        await settle(client, queue, first[:1])

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert await states(client, queue) == (2, 1, 0, 0)
        assert [each.value for each in await receive(client, queue)] == [b"c", b"d"]
        await settle(client, queue, first[1:])
        assert await states(client, queue) == (0, 2, 0, 0)


async def test_altered_queue_settings_hold_at_once(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        await receive(client, queue, visibility_timeout_ms=0)
        request = AlterQueueRequest("orders", {"visibility_timeout_ms": "5s"}, [])
        await submit(client, api.ALTER_QUEUE, request).reply()
        await receive(client, queue)

        await world.pass_time(5.1)

        assert [each.receive_count for each in await receive(client, queue)] == [3]


async def test_another_order_of_delivery_is_rebuilt_from_the_journal(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await receive(client, queue, 1)

        request = AlterQueueRequest("orders", {"priority_weights": "2,1"}, [])
        await submit(client, api.ALTER_QUEUE, request).reply()

        assert [each.value for each in await receive(client, queue)] == [b"b"]


async def test_messages_with_deleted_records_are_removed(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        await receive(client, queue, 1)

        await delete_records(client, topic_of(broker), 2)

        assert [each.value for each in await receive(client, queue)] == [b"c"]
        assert await states(client, queue) == (0, 1, 0, 0)


@pytest.mark.statement("b13")
async def test_a_move_below_the_start_of_the_log_removes_messages_again(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        for value in (b"a", b"b", b"c"):
            await produce(client, topic_of(broker), batch_of(value))
        await settle(client, queue, await receive(client, queue))
        await delete_records(client, topic_of(broker), 1)
        assert await receive(client, queue) == []

        hosted_of(broker, queue).seek(0)

        assert await states(client, queue) == (2, 0, 0, 0)


async def test_expired_messages_are_not_delivered(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="10min", visibility_timeout_ms="1min")
        await produce(client, topic_of(broker), batch_of(b"a", b"b", at_ms=START_MS))
        leased = await receive(client, queue, 1)
        await world.pass_time(601)
        await produce(client, topic_of(broker), batch_of(b"c", at_ms=world.clock.now_ms()))

        assert [each.value for each in await receive(client, queue)] == [b"c"]

        assert await states(client, queue) == (0, 1, 0, 0)
        await settle(client, queue, leased)  # Success, as for any deleted message (b13).


async def test_one_read_at_a_time_is_under_way_for_a_partition(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, delivery_delay_ms="1h")
        await produce(client, topic_of(broker), batch_of(b"a"))
        waits = submit_receive(client, queue, max_wait_ms=600_000)
        await let_happen()
        ((path, _),) = [found for found in world.segments() if "queue@" not in found[0]]
        world.disk.cold_paths.add(path)
        world.work.hold_reads()
        await produce(client, topic_of(broker), batch_of(b"b"))
        await world.pass_time(61)  # Meanwhile an expiry check becomes due.
        world.work.hold_work()
        world.work.let_all_read()
        await let_happen()

        asks = submit_receive(client, queue, max_wait_ms=0)
        await let_happen()

        assert not asks.is_answered
        world.work.let_all()
        assert await received(asks) == []
        assert not waits.is_answered


async def test_a_visible_message_is_found_behind_any_number_of_invisible_ones(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_partition, "_MORE_RECORDS", 2)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, delivery_delay_ms="1h")
        for number in range(9):
            await produce(client, topic_of(broker), batch_of(b"%d" % number, at_ms=START_MS))
        await produce(client, topic_of(broker), batch_of(b"due", at_ms=START_MS - 3_600_000))

        assert [each.value for each in await receive(client, queue)] == [b"due"]


async def test_an_empty_receive_is_woken_by_the_next_record_and_the_next_deadline(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        for value in (b"first", b"second"):
            pending = submit_receive(
                client, queue, max_wait_ms=60_000, visibility_timeout_ms=10_000
            )
            await let_happen()
            assert not pending.is_answered
            await produce(client, topic_of(broker), batch_of(value))
            assert [each.value for each in await received(pending)] == [value]
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()

        await world.pass_time(10.1)

        assert [each.value for each in await received(pending)] == [b"first", b"second"]


@pytest.mark.statement("b86")
async def test_very_many_expired_leases_are_ended_in_parts(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_state, "TIMERS_PER_STEP", 1)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"0", b"1", b"2", b"3", b"4"))
        first = await receive(client, queue, 1, visibility_timeout_ms=1000)
        for number in range(1, 5):
            await receive(client, queue, 1, visibility_timeout_ms=6000 - number * 1000)
        await world.pass_time(10)

        await settle(client, queue, first)

        assert await states(client, queue) == (4, 0, 0, 0)
        again = [(await receive(client, queue, 1))[0].value for _ in range(4)]
        assert again == [b"4", b"3", b"2", b"1"]
