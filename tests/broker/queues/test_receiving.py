"""Tests of receiving and settling over the wire, with one broker."""

from trio.testing import MockClock

from tests.broker.asking import batch_of, produce
from tests.broker.queues.asking import (
    count,
    create_queue,
    purge,
    receive,
    received,
    seek,
    settle,
    states,
    submit_receive,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from wire.queues import SettleAction

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


async def test_what_was_deleted_is_gone_and_stays_in_the_log(mock_clock: MockClock) -> None:
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


async def test_a_release_wakes_a_receive_that_waits(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        messages = await receive(client, queue)
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()

        await settle(client, queue, messages, SettleAction.RELEASE)

        assert [message.receive_count for message in await received(pending)] == [2]


async def test_a_message_that_was_released_with_a_delay_comes_back_after_it(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        messages = await receive(client, queue)
        await settle(client, queue, messages, SettleAction.RELEASE, delay_ms=7000)
        assert await states(client, queue) == (0, 0, 1, 0)
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()

        await world.pass_time(6.9)
        assert not pending.is_answered
        await world.pass_time(0.2)

        assert [message.value for message in await received(pending)] == [b"a"]


async def test_a_new_process_goes_on_where_the_old_one_was(mock_clock: MockClock) -> None:
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


async def test_a_purge_does_away_with_everything(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        await receive(client, queue, 1)

        assert await purge(client, queue) == 3

        assert await states(client, queue) == (0, 0, 0, 0)
        await produce(client, topic_of(broker), batch_of(b"d"))
        assert [each.value for each in await receive(client, queue)] == [b"d"]


async def test_a_seek_hands_out_again_what_is_in_the_log(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        await settle(client, queue, await receive(client, queue))
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()

        assert await seek(client, queue, 1) == 2

        again = await received(pending)
        assert [(each.value, each.receive_count) for each in again] == [(b"b", 1), (b"c", 1)]


async def test_the_oldest_message_is_known_by_its_time(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", at_ms=START_MS - 7))

        assert (await count(client, queue)).oldest_timestamp_ms == START_MS - 7
