"""Tests of dead letters by time: a message dies when its last delivery ends, without a request."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import errno
from contextlib import AbstractAsyncContextManager

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, produce, submit
from tests.broker.queues.dead_letters.dead_letter_fixture import (
    DeadLetterQueue,
    dead_letter_queue,
    let_move,
    values_of,
)
from tests.broker.queues.queue_requests import (
    create_queue,
    hosted_of,
    peek,
    receive,
    settle,
    states,
    submit_receive,
    submit_settle,
    topic_of,
)
from tests.broker.world import World
from tests.broker.world import settle as let_happen
from tidelog.wire.messages.queue_admin import AlterQueueRequest
from tidelog.wire.messages.queues import MessageState, SettleAction
from tidelog.wire.protocol import api


def once(mock_clock: MockClock, **settings: str) -> AbstractAsyncContextManager[DeadLetterQueue]:
    """Run a broker with a queue whose messages have one delivery."""
    return dead_letter_queue(mock_clock, max_receive_count="1", **settings)


@pytest.mark.statement("b51", "b57", "b94")
async def test_a_message_dies_when_its_last_lease_ends_without_a_request(
    mock_clock: MockClock,
) -> None:
    async with once(mock_clock) as (world, broker, client, _, queue):
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await receive(client, queue, 1, visibility_timeout_ms=30_000)

        await world.pass_time(29.9)
        assert await values_of(client, topic_of(broker, "dead")) == []
        await world.pass_time(0.1)

        assert await values_of(client, topic_of(broker, "dead")) == [b"a"]
        assert await states(client, queue) == (1, 0, 0, 0)


@pytest.mark.statement("b51", "b95")
@pytest.mark.parametrize("retry_backoff", ["none", "10min"])
async def test_a_poll_of_the_dead_letter_queue_after_a_release_finds_the_message(
    mock_clock: MockClock, retry_backoff: str
) -> None:
    async with once(mock_clock, retry_backoff=retry_backoff) as (_, broker, client, dead, queue):
        await produce(client, topic_of(broker), batch_of(b"a"))

        messages = await receive(client, queue)
        await settle(client, queue, messages, action=SettleAction.RELEASE)

        assert [message.value for message in await receive(client, dead)] == [b"a"]


@pytest.mark.statement("b55", "b95")
async def test_answers_wait_for_the_move_of_a_message_that_just_died(
    mock_clock: MockClock,
) -> None:
    """Whichever answer finds the message dead: the poll after it finds the dead letter."""
    async with once(mock_clock) as (world, broker, client, dead, queue):
        await produce(client, topic_of(broker), batch_of(b"a"))
        await receive(client, queue, visibility_timeout_ms=1000)
        world.work.hold_syncs()
        await world.pass_time(1)

        pending = submit_receive(client, queue)
        await let_happen()
        was_answered = pending.is_answered
        world.work.let_all_sync()
        await let_happen()

        assert not was_answered, "the message was in neither queue"
        assert pending.is_answered
        assert [message.value for message in await receive(client, dead)] == [b"a"]
        assert await states(client, queue) == (0, 0, 0, 0)
        assert (await peek(client, queue)).runs == []


@pytest.mark.statement("b55", "b95")
async def test_a_dead_letter_queue_that_does_not_answer_delays_answers_for_a_second(
    mock_clock: MockClock,
) -> None:
    async with once(mock_clock) as (world, broker, client, _, queue):
        await produce(client, topic_of(broker), batch_of(b"a"))
        (path,) = {path for path, _ in world.segments() if path.startswith("topics/dead")}
        world.disk.fail("write_at", path=path, error_number=errno.ENOSPC, count=100)
        messages = await receive(client, queue)

        pending = submit_settle(client, queue, messages, action=SettleAction.REJECT)
        await let_happen()
        answered: list[bool] = []
        for seconds in (0.9, 0.2):
            await world.pass_time(seconds)
            answered.append(pending.is_answered)
        assert answered == [False, True]

        later = submit_receive(client, queue)
        await let_happen()
        assert later.is_answered, "an old dead letter delays nothing"
        (run,) = (await peek(client, queue, MessageState.DEAD)).runs
        assert run.count == 1


async def test_a_queue_with_a_last_delivery_stays_loaded_until_its_end(
    mock_clock: MockClock,
) -> None:
    """A partition without requests is unloaded after ten minutes."""
    async with once(mock_clock) as (world, broker, client, _, queue):
        await produce(client, topic_of(broker), batch_of(b"a"))
        await receive(client, queue, visibility_timeout_ms=3_600_000)

        for _minute in range(60):
            await world.pass_time(60)

        assert await values_of(client, topic_of(broker, "dead")) == [b"a"]


@pytest.mark.statement("b94")
async def test_the_next_leader_ends_last_deliveries_without_a_request(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker, dead_letter_queue="dead", max_receive_count="1")
        await produce(client, topic_of(broker), batch_of(b"a"))
        await receive(client, queue, visibility_timeout_ms=20_000)

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        await let_move(world, 25)

        assert await values_of(client, topic_of(broker, "dead")) == [b"a"]


@pytest.mark.statement("b56", "b94")
@pytest.mark.parametrize("is_loaded", [True, False])
async def test_a_lower_limit_makes_dead_letters_without_a_request(
    mock_clock: MockClock, is_loaded: bool
) -> None:
    async with dead_letter_queue(mock_clock, max_receive_count="5") as (
        world,
        broker,
        client,
        _,
        queue,
    ):
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await receive(client, queue, 1, visibility_timeout_ms=1000)
        await let_move(world, 5)
        if not is_loaded:
            for _minute in range(15):
                await world.pass_time(60)

        settings = {"max_receive_count": "1"}
        await submit(client, api.ALTER_QUEUE, AlterQueueRequest("orders", settings, [])).reply()
        await let_move(world)

        assert await values_of(client, topic_of(broker, "dead")) == [b"a"]


async def test_a_decision_that_cannot_be_written_is_made_later(mock_clock: MockClock) -> None:
    async with once(mock_clock) as (world, broker, client, _, queue):
        await produce(client, topic_of(broker), batch_of(b"a"))
        await receive(client, queue, visibility_timeout_ms=1000)
        (path,) = {path for path, _ in world.segments() if path.startswith("topics/queue@orders")}
        world.disk.fail("write_at", path=path, error_number=errno.ENOSPC, count=3)

        await let_move(world, 30)

        assert await values_of(client, topic_of(broker, "dead")) == [b"a"]


async def test_messages_that_were_settled_in_time_keep_no_broker_busy(
    mock_clock: MockClock,
) -> None:
    """A message may be noted as exhausted, and deleted before the decision."""
    async with once(mock_clock) as (world, broker, client, _, queue):
        await produce(client, topic_of(broker), batch_of(b"a"))
        await settle(client, queue, await receive(client, queue))
        state = hosted_of(broker, queue).core.state
        state.exhausted.append((0, 1))

        hosted_of(broker, queue).schedule()
        await let_happen()

        assert state.exhausted == []
        assert await values_of(client, topic_of(broker, "dead")) == []
        assert world.told("dead_letters_wait") == []


@pytest.mark.statement("b95")
async def test_dead_letters_of_an_earlier_leader_delay_no_answer(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker, dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a"))
        (path,) = {path for path, _ in world.segments() if path.startswith("topics/dead")}
        world.disk.fail("write_at", path=path, error_number=errno.ENOSPC, count=100)
        await settle(client, queue, await receive(client, queue), action=SettleAction.REJECT)

    world = world.after_crash()
    world.disk.fail("write_at", path=path, error_number=errno.ENOSPC, count=100)
    async with world.broker(), world.client() as client:
        pending = submit_receive(client, queue)
        await let_happen()

        assert pending.is_answered
        assert (await states(client, queue))[3] == 1
