"""Tests of RECEIVE and SETTLE over the wire, with one broker."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from typing import Any

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, produce, submit
from tests.broker.queues.queue_requests import (
    create_queue,
    receive,
    received,
    settle,
    states,
    submit_receive,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.server import Broker
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import OverLimitError
from tidelog.wire.messages.queues import EndReceivesRequest
from tidelog.wire.protocol import api

TIMEOUT_S = 30


async def test_a_received_message_is_invisible_until_its_visibility_timeout(
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
async def test_a_long_poll_receives_a_sent_message(mock_clock: MockClock) -> None:
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
async def test_a_send_wakes_as_many_receives_as_it_has_messages(
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


async def test_a_receive_without_wait_time_returns_at_once_also_during_an_expiry_check(
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


async def test_a_receive_without_wait_time_is_answered_after_a_read_for_another_receive(
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


@pytest.mark.statement("b19")
async def test_a_receive_at_the_limit_of_messages_in_flight_fails_if_it_asks_for_that(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, partitions=2, max_in_flight="4")
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        asked: dict[str, Any] = {"partitions": (0, 1), "fail_at_limit": True}
        first, second = await receive(client, queue, **asked)

        assert await receive(client, queue, partitions=(0, 1)) == []
        with pytest.raises(
            OverLimitError, match=r"2 are in flight.*max_in_flight \(4\) is 2;"
        ) as e:
            await receive(client, queue, **asked)
        assert (e.value.in_flight, e.value.max_in_flight) == (2, 2)
        waiting = submit_receive(client, queue, max_wait_ms=5000, **asked)
        await let_happen()
        assert not waiting.is_answered
        await settle(client, queue, [first])
        (third,) = await received(waiting)
        await settle(client, queue, [second, third])
        assert await receive(client, queue, **asked) == []


async def test_a_receive_without_wait_time_is_answered_when_the_queue_is_loaded(
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


async def test_a_long_poll_ends_without_messages_when_its_time_is_over(
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


async def test_messages_received_by_a_lost_client_are_released(mock_clock: MockClock) -> None:
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


async def test_a_receive_attempt_can_be_repeated_although_no_message_is_visible(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        batch = encode_batch(Columns(1, keys=[b"k"], values=[b"v"]), first_timestamp_ms=START_MS)
        await produce(client, topic_of(broker), batch)
        first = await receive(client, queue, attempt_id=b"lost")

        again = await receive(client, queue, attempt_id=b"lost")

        assert [each.value for each in first] == [each.value for each in again] == [b"v"]
        assert [each.receive_count for each in again] == [1]


async def test_a_repeated_receive_attempt_keeps_its_messages_when_the_first_client_disconnects(
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
        assert await receive(client, queue) == [], "no other receive has it as well"


async def test_a_client_ends_its_receives_before_it_closes_the_connection(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client, world.client() as other:
        queue = await create_queue(broker, is_fifo=True)
        earlier = submit_receive(client, queue, attempt_id=b"1", max_wait_ms=60_000)
        await let_happen()
        same_turn = submit_receive(client, queue, attempt_id=b"2", max_wait_ms=60_000)
        of_other = submit_receive(other, queue, attempt_id=b"3", max_wait_ms=60_000)

        reply = await submit(client, api.END_RECEIVES, EndReceivesRequest(queue)).reply()

        assert reply.ended_count == 2
        assert earlier.is_answered
        assert same_turn.is_answered
        assert not of_other.is_answered
        assert await received(earlier) == await received(same_turn) == []


async def test_a_receive_that_has_leased_messages_ends_with_them(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, receive_acks="all")
        await produce(client, topic_of(broker), batch_of(b"a"))
        await states(client, queue)
        world.work.hold_syncs()
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()

        reply = await submit(client, api.END_RECEIVES, EndReceivesRequest(queue)).reply()
        world.work.let_all_sync()

        assert reply.ended_count == 0
        assert [message.value for message in await received(pending)] == [b"a"]


def loaded_of(broker: Broker, queue: bytes, count: int) -> list[int]:
    """Return the partitions of a queue that are loaded."""
    partitions = broker._partitions
    assert partitions is not None
    replicas = [partitions.replica(queue, number) for number in range(count)]
    return [
        replica.number
        for replica in replicas
        if replica is not None
        and any(isinstance(each, HostedPartition) for each in replica.watchers)
    ]


async def test_a_receive_looks_only_at_partitions_that_it_needs(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, partitions=3)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        assert await states(client, queue) == (2, 0, 0, 0)  # Partition 0 is loaded.

        first = await receive(client, queue, 1, partitions=(0, 1, 2))
        assert loaded_of(broker, queue, 3) == [0]
        second = await receive(client, queue, 2, partitions=(0, 1, 2))

        assert [message.value for message in (*first, *second)] == [b"a", b"b"]
        assert loaded_of(broker, queue, 3) == [0, 1, 2]
