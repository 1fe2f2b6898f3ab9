"""Tests of settling messages."""

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, delete_records, produce, raise_if, submit
from tests.broker.queues.queue_requests import (
    count,
    create_queue,
    receive,
    received,
    settle,
    states,
    submit_receive,
    submit_settle,
    topic_of,
)
from tests.broker.world import World
from tests.broker.world import settle as let_happen
from tidelog.wire.errors import InvalidRequestError, LeaderNotAvailableError
from tidelog.wire.messages.field_types import LONG_LIST_LENGTH_MAX
from tidelog.wire.messages.queues import (
    GetPurgeOffsetRequest,
    SettleAction,
    Settlement,
    SettleRequest,
)
from tidelog.wire.protocol import api

TIMEOUT_S = 30


async def test_a_deleted_message_is_gone_from_the_queue_and_stays_in_the_log(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        other = await create_queue(broker, "billing")
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        messages = await receive(client, queue)

        await settle(client, queue, messages)

        assert await states(client, queue) == (0, 0, 0, 0)
        assert (await count(client, queue)).oldest_offset == 2
        assert [message.value for message in await receive(client, other)] == [b"a", b"b"]


@pytest.mark.statement("b18")
async def test_a_release_wakes_a_waiting_receive(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        messages = await receive(client, queue)
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()

        await settle(client, queue, messages, action=SettleAction.RELEASE)

        assert [message.receive_count for message in await received(pending)] == [2]


@pytest.mark.statement("b18")
async def test_a_message_released_with_a_delay_is_visible_after_it(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        messages = await receive(client, queue)
        await settle(client, queue, messages, action=SettleAction.RELEASE, delay_ms=7000)
        assert await states(client, queue) == (0, 0, 1, 0)
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()

        await world.pass_time(6.9)
        assert not pending.is_answered
        await world.pass_time(0.2)

        assert [message.value for message in await received(pending)] == [b"a"]


@pytest.mark.parametrize("is_loaded", [False, True])
async def test_a_message_stays_deleted_although_its_lease_was_lost_in_a_power_cut(
    mock_clock: MockClock, *, is_loaded: bool
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, receive_acks="leader")
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        assert await states(client, queue) == (3, 0, 0, 0)
        world.work.hold_syncs()
        messages = await receive(client, queue, 2)

    world = world.after_power_cut(1)
    async with world.broker(), world.client() as client:
        if is_loaded:  # The state has no records yet.
            await submit(client, api.GET_PURGE_OFFSET, GetPurgeOffsetRequest(queue, 0)).reply()

        await settle(client, queue, messages)

        assert await states(client, queue) == (1, 0, 0, 0)
        assert [message.value for message in await receive(client, queue)] == [b"c"]


async def test_a_delete_by_a_lost_lease_succeeds_where_the_log_has_deleted_records(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, receive_acks="leader")
        for value in (b"a", b"b", b"c"):
            await produce(client, topic_of(broker), batch_of(value))
        world.work.hold_syncs()
        messages = await receive(client, queue, 2)

    world = world.after_power_cut(1)
    async with world.broker() as broker, world.client() as client:
        await submit(client, api.GET_PURGE_OFFSET, GetPurgeOffsetRequest(queue, 0)).reply()
        await delete_records(client, topic_of(broker), 1)

        await settle(client, queue, messages)

        assert await states(client, queue) == (1, 0, 0, 0)
        assert [message.value for message in await receive(client, queue)] == [b"c"]


async def test_a_settlement_that_cannot_be_made_in_time_is_refused(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, receive_acks="all")
        await produce(client, topic_of(broker), batch_of(b"a"))
        messages = await receive(client, queue, visibility_timeout_ms=60_000)

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        world.work.hold_reads()
        pending = submit_settle(client, queue, messages, action=SettleAction.RELEASE, delay_ms=0)
        await let_happen()
        await world.pass_time(10.1)
        world.work.let_all_read()

        (result,) = (await pending.reply()).results
        with pytest.raises(LeaderNotAvailableError, match="nothing was changed"):
            raise_if(result.error)
        assert await states(client, queue) == (0, 1, 0, 0)


async def test_the_number_of_runs_in_a_settle_request_is_limited(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        half = [(offset, 1) for offset in range(0, LONG_LIST_LENGTH_MAX, 2)]
        settlements = [Settlement(0, b"receipt", half, SettleAction.DELETE) for _ in range(3)]

        for count in (2, 3):
            request = SettleRequest(queue, settlements[:count])
            pending = submit(client, api.SETTLE, request)
            if count == 2:
                assert len((await pending.reply()).results) == 2
            else:
                with pytest.raises(InvalidRequestError, match="at most 10,000 runs"):
                    await pending.reply()
