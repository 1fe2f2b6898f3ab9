"""Tests of resumption: a new leader continues background work, and idle queues cost nothing."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import errno

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, produce, submit
from tests.broker.queues.dead_letters.dead_letter_fixture import (
    dead_letter_queue,
    let_move,
    reject,
    values_of,
)
from tests.broker.queues.queue_requests import (
    create_queue,
    receive,
    settle,
    states,
    submit_settle,
    topic_of,
)
from tests.broker.world import World
from tests.broker.world import settle as let_happen
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.server import Broker
from tidelog.wire.messages.queue_admin import AlterQueueRequest
from tidelog.wire.messages.queues import RedriveRequest, SettleAction
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection


def is_loaded(broker: Broker, queue_id: bytes) -> bool:
    """Return whether a partition of a queue is in memory."""
    return bool(journal(broker, queue_id).watchers)


def journal(broker: Broker, queue_id: bytes) -> Partition:
    assert broker._partitions is not None
    found = broker._partitions.replica(queue_id, 0)
    assert found is not None
    return found


async def reject_while_the_journal_is_full(
    world: World, client: RpcConnection, queue_id: bytes
) -> None:
    messages = await receive(client, queue_id)
    world.work.hold_syncs()
    pending = submit_settle(client, queue_id, messages, action=SettleAction.REJECT)
    await let_happen()
    (path,) = {path for path, _ in world.segments() if path.startswith("topics/queue@orders")}
    world.disk.fail("write_at", path=path, error_number=errno.ENOSPC, count=3)
    world.work.let_all_sync()
    await pending.reply()


async def test_dead_letter_moves_resume_without_a_request(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker, dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        (path,) = {path for path, _ in world.segments() if path.startswith("topics/dead")}
        world.disk.fail("write_at", path=path, error_number=errno.ENOSPC, count=100)
        await reject(client, queue)
        assert (await states(client, queue))[3] == 2

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        await let_move(world)

        assert await values_of(client, topic_of(broker, "dead")) == [b"a", b"b"]


@pytest.mark.statement("b61")
async def test_a_redrive_resumes_without_a_request(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        dead = await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker, dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        await reject(client, queue)
        await let_move(world)
        await submit(client, api.REDRIVE, RedriveRequest(dead, [0], messages_per_s=1)).reply()
        await let_happen()

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        await let_move(world)

        assert await values_of(client, topic_of(broker)) == [b"a", b"b", b"c"] * 2


async def test_a_start_does_not_load_a_queue_without_background_work(
    mock_clock: MockClock,
) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, dead, queue):
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        await settle(client, queue, await receive(client, queue, 1))
        await reject(client, queue)
        await let_move(world)

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        await let_move(world)
        assert not is_loaded(broker, queue)
        assert not is_loaded(broker, dead)

        assert await states(client, queue) == (0, 0, 0, 0)
        assert await states(client, dead) == (2, 0, 0, 0)


async def test_kept_dead_letters_are_moved_when_the_queue_gets_a_target(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await reject(client, queue)

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        await let_move(world)
        assert not is_loaded(broker, queue)

        settings = {"dead_letter_queue": "dead"}
        await submit(client, api.ALTER_QUEUE, AlterQueueRequest("orders", settings, [])).reply()
        await let_move(world)

        assert await values_of(client, topic_of(broker, "dead")) == [b"a", b"b"]


async def test_kept_dead_letters_of_a_loaded_queue_are_moved_when_it_gets_a_target(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await reject(client, queue)

        settings = {"dead_letter_queue": "dead"}
        await submit(client, api.ALTER_QUEUE, AlterQueueRequest("orders", settings, [])).reply()
        await let_move(world)

        assert await values_of(client, topic_of(broker, "dead")) == [b"a", b"b"]


async def test_a_queue_whose_journal_had_no_room_resumes_when_there_is_room(
    mock_clock: MockClock,
) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, _, queue):
        await produce(client, topic_of(broker), batch_of(b"a"))
        await reject_while_the_journal_is_full(world, client, queue)

        await let_move(world, 60)

        assert await values_of(client, topic_of(broker, "dead")) == [b"a"]
        assert await states(client, queue) == (0, 0, 0, 0)


async def test_failed_work_resumes_although_other_queues_change_all_the_time(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_queue(broker, "dead", topic="dead")
        await create_queue(broker, "other", topic="other")
        queue = await create_queue(broker, dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a"))
        await reject_while_the_journal_is_full(world, client, queue)

        await let_happen()
        assert not is_loaded(broker, queue)
        for number in range(20):
            settings = {"visibility_timeout_ms": f"{10 + number}s"}
            await submit(client, api.ALTER_QUEUE, AlterQueueRequest("other", settings, [])).reply()
            await world.pass_time(1)

        assert is_loaded(broker, queue)


async def test_an_unloaded_idle_queue_is_not_checked_for_work(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        await create_queue(broker)

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, "another", topic="another")
        await receive(client, queue)
        assert is_loaded(broker, queue)
        journal(broker, queue).log.fail("each check is recorded")
        await world.pass_time(1300)
        await world.pass_time(1300)

        assert not is_loaded(broker, queue)
        assert world.told("queue_not_resumed") == []
