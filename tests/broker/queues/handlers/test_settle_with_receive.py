"""Tests of RECEIVE with settlements: what is settled, what is received, and when it answers."""

from typing import Any

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, produce
from tests.broker.queues.queue_requests import (
    Message,
    create_queue,
    receive,
    refused,
    settled_and_received,
    settlements_of,
    states,
    submit_receive,
    submit_settle,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.queues import SettleAction, Settled

DELETED = [Settled()]


def of_group(*values: bytes) -> bytearray:
    """Return a batch of messages of one group."""
    columns = Columns(len(values), keys=[b"g"] * len(values), values=list(values))
    return encode_batch(columns, first_timestamp_ms=START_MS)


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


async def test_a_deleted_message_lets_the_same_request_receive_the_next_of_its_group(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await produce(client, topic_of(broker), of_group(b"a", b"b"))
        first = await receive(client, queue, 1)
        assert await receive(client, queue, 1) == []

        pending = submit_receive(client, queue, 1, settlements=settlements_of(first))

        settled, second = await settled_and_received(pending)
        assert (settled, values(second)) == (DELETED, [b"b"])
        assert await states(client, queue) == (0, 1, 0, 0)


async def test_a_message_that_is_released_is_received_by_the_same_request(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        first = await receive(client, queue)
        released = settlements_of(first, action=SettleAction.RELEASE)

        _, again = await settled_and_received(submit_receive(client, queue, settlements=released))

        assert [each.receive_count for each in again] == [2]


async def test_a_failed_settlement_stops_neither_the_others_nor_the_receive(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True, partitions=2)
        await produce(client, topic_of(broker), of_group(b"a", b"b", b"c"))
        first = await receive(client, queue, 1)
        forged = settlements_of([message._replace(receipt=b"forged") for message in first])
        unknown = settlements_of([message._replace(partition=7) for message in first])
        other = settlements_of([message._replace(offset=2) for message in first])
        settlements = [*forged, *unknown, *other, *settlements_of(first)]

        settled, second = await settled_and_received(
            submit_receive(client, queue, 1, settlements=settlements)
        )

        assert [each.error is None for each in settled] == [False, False, True, True]
        assert refused(settled) == [(2, 1)]
        assert values(second) == [b"b"]


async def test_the_answer_to_a_settlement_does_not_wait_for_messages(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        first = await receive(client, queue)

        pending = submit_receive(
            client, queue, max_wait_ms=600_000, settlements=settlements_of(first)
        )
        await let_happen()

        assert pending.is_answered
        assert await settled_and_received(pending) == (DELETED, [])
        assert broker.statistics().waiting_count == 0


async def test_the_answer_waits_for_the_commit_of_settlements_and_leases(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, receive_acks="all")
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        first = await receive(client, queue, 1)
        world.work.hold_syncs()

        pending = submit_receive(client, queue, 1, settlements=settlements_of(first))
        await let_happen()
        assert not pending.is_answered

        world.work.let_all_sync()
        settled, second = await settled_and_received(pending)
        assert (settled, values(second)) == (DELETED, [b"b"])


async def test_a_settlement_is_committed_before_the_answer_if_leases_need_no_commit(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, receive_acks="leader")
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        first = await receive(client, queue, 1)
        world.work.hold_syncs()

        pending = submit_receive(client, queue, 1, settlements=settlements_of(first))
        await let_happen()
        assert not pending.is_answered

        world.work.let_all_sync()
        assert values((await settled_and_received(pending))[1]) == [b"b"]


@pytest.mark.parametrize("receive_acks", ["all", "leader"])
async def test_the_end_of_the_connection_gives_messages_back_and_keeps_settlements(
    mock_clock: MockClock, receive_acks: str
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, receive_acks=receive_acks)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        first = await receive(client, queue, 1)
        world.work.hold_syncs()
        async with world.client() as hasty:
            submit_receive(hasty, queue, 1, settlements=settlements_of(first))
            await let_happen()
        await let_happen()
        world.work.let_all_sync()
        await let_happen()

        again = await receive(client, queue)

        assert [(each.value, each.receive_count) for each in again] == [(b"b", 1)]


async def test_a_connection_that_ends_before_the_queue_is_loaded_settles_and_receives_nothing(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, receive_acks="all")
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        first = await receive(client, queue, 1, visibility_timeout_ms=600_000)

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        world.work.hold_reads()
        async with world.client() as hasty:
            submit_receive(hasty, queue, 1, settlements=settlements_of(first))
            await let_happen()
        await let_happen()
        world.work.let_all_read()
        await let_happen()

        again = await receive(client, queue)

        assert [(each.value, each.receive_count) for each in again] == [(b"b", 1)]
        assert broker.statistics().waiting_count == 0


async def test_a_repeated_request_settles_once_and_receives_its_messages_again(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await produce(client, topic_of(broker), of_group(b"a", b"b", b"c"))
        first = await receive(client, queue, 1)
        how: dict[str, Any] = {"settlements": settlements_of(first), "attempt_id": b"an attempt"}

        second: list[Message] = []
        for _ in range(2):
            pending = submit_receive(client, queue, 1, **how)
            settled, second = await settled_and_received(pending)
            assert (settled, values(second)) == (DELETED, [b"b"])
            assert [each.receive_count for each in second] == [1]

        await submit_settle(client, queue, second).reply()
        assert values(await receive(client, queue)) == [b"c"]


async def test_an_invalid_request_settles_nothing(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        settlements = settlements_of(await receive(client, queue))

        invalid: list[dict[str, Any]] = [
            {"partitions": (0, 0)},
            {"partitions": ()},
            {"visibility_timeout_ms": 1 << 40},
        ]
        for how in invalid:
            with pytest.raises(InvalidRequestError):
                await settled_and_received(
                    submit_receive(client, queue, settlements=settlements, **how)
                )

        assert await states(client, queue) == (0, 1, 0, 0)
