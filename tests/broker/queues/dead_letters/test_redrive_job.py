"""Tests of redrive."""

# A test lowers the feature level that the broker knows.
# pyright: reportPrivateUsage=false

from typing import Any

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import (
    batch_of,
    create_topic,
    delete_topic,
    fetch_all,
    produce,
    raise_if,
    submit,
)
from tests.broker.queues.dead_letters.dead_letter_fixture import dead_letter_queue, let_move, reject
from tests.broker.queues.queue_requests import (
    create_queue,
    receive,
    states,
    topic_of,
)
from tests.broker.world import World
from tests.broker.world import settle as let_happen
from tests.wire.batches import with_payload
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.queue_admin import AlterQueueRequest
from tidelog.wire.messages.queues import (
    ORIGIN_PARTITION_HEADER,
    ORIGIN_TOPIC_HEADER,
    RedriveRequest,
)
from tidelog.wire.messages.redrives import DescribeRedriveRequest, RedriveDescription, RedriveStatus
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection


async def redrive(
    client: RpcConnection,
    queue: bytes,
    *,
    messages_per_s: int | None = None,
    origin_queue: str | None = None,
    is_cancelled: bool = False,
) -> int:
    request = RedriveRequest(queue, [0], None, messages_per_s, origin_queue, is_cancelled)
    reply = await submit(client, api.REDRIVE, request).reply()
    raise_if(reply.results[0].error)
    return reply.results[0].count


async def describe(client: RpcConnection, queue: bytes) -> RedriveDescription:
    """Return the progress of the redrive."""
    request = DescribeRedriveRequest(queue, [0])
    (found,) = (await submit(client, api.DESCRIBE_REDRIVE, request).reply()).redrives
    raise_if(found.error)
    return found


@pytest.mark.statement("b59")
async def test_a_redrive_moves_each_dead_letter_to_its_origin(mock_clock: MockClock) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, dead, orders):
        bills = await create_queue(broker, "bills", topic="bills", dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await produce(client, topic_of(broker, "bills"), batch_of(b"c"))
        await reject(client, orders, 10)
        await let_move(world)
        await reject(client, bills, 10)
        await let_move(world)
        assert await states(client, dead) == (3, 0, 0, 0)

        assert await redrive(client, dead) == 3
        await let_move(world)

        assert await states(client, dead) == (0, 0, 0, 0)
        report = await describe(client, dead)
        assert (report.status, report.moved, report.to_move) == (RedriveStatus.COMPLETED, 3, 3)
        assert (report.left, report.on_the_way, report.skipped, report.failed) == (0, 0, 0, 0)
        assert [each.value for each in await receive(client, orders)] == [b"a", b"b"]
        assert [each.value for each in await receive(client, bills)] == [b"c"]


@pytest.mark.statement("b60")
async def test_a_redriven_message_is_as_new_as_a_sent_one(mock_clock: MockClock) -> None:
    async with dead_letter_queue(mock_clock, retention_ms="1h") as (
        world,
        broker,
        client,
        dead,
        orders,
    ):
        await produce(client, topic_of(broker), batch_of(b"a"))
        await reject(client, orders, 10)
        await let_move(world)
        await world.pass_time(9 * 3600)

        await redrive(client, dead)
        await let_move(world)
        await world.pass_time(120)

        assert [each.value for each in await receive(client, orders)] == [b"a"]


@pytest.mark.statement("b59")
async def test_a_redrive_can_be_limited_to_one_origin_queue(mock_clock: MockClock) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, dead, orders):
        bills = await create_queue(broker, "bills", topic="bills", dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a"))
        await produce(client, topic_of(broker, "bills"), batch_of(b"b"))
        await reject(client, orders, 10)
        await let_move(world)
        await reject(client, bills, 10)
        await let_move(world)

        await redrive(client, dead, origin_queue="bills")
        await let_move(world)

        assert [each.value for each in await receive(client, bills)] == [b"b"]
        report = await describe(client, dead)
        assert (report.moved, report.skipped, report.left) == (1, 1, 0)
        assert report.origin_queue == "bills"
        assert [each.value for each in await receive(client, dead)] == [b"a"]


@pytest.mark.statement("b60", "b61")
async def test_a_redrive_keeps_its_rate_and_can_be_cancelled(mock_clock: MockClock) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, dead, orders):
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c", b"d", b"e"))
        await reject(client, orders, 10)
        await let_move(world)

        await redrive(client, dead, messages_per_s=1)
        await let_move(world, 2)
        assert 1 <= len(await fetch_all(client, topic_of(broker))) - 5 <= 3
        moved = await redrive(client, dead, is_cancelled=True)
        await let_move(world)

        assert moved <= 3
        report = await describe(client, dead)
        assert (report.status, report.moved) == (RedriveStatus.CANCELLED, moved)
        assert (report.left, report.messages_per_s) == (5 - moved, 1)
        assert report.ended_ms is not None
        assert len(await fetch_all(client, topic_of(broker))) == 5 + moved
        assert await states(client, dead) == (5 - moved, 0, 0, 0)


async def test_the_redrives_of_a_queue_are_told_with_their_ids(mock_clock: MockClock) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, dead, orders):
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await reject(client, orders, 10)
        await let_move(world)
        first = RedriveRequest(dead, [0], redrive_id=b"one", note="the first")
        second = RedriveRequest(dead, [0], messages_per_s=1, redrive_id=b"two")

        for request in (first, first):
            (done,) = (await submit(client, api.REDRIVE, request).reply()).results
            assert (done.count, done.error) == (2, None)
        await let_move(world)
        await reject(client, orders, 10)
        await let_move(world)
        await submit(client, api.REDRIVE, second).reply()
        for redrive_id, is_ended in ((b"one", False), (b"two", True)):
            cancel = RedriveRequest(dead, [0], is_cancelled=True, redrive_id=redrive_id)
            await submit(client, api.REDRIVE, cancel).reply()
            report = await describe(client, dead)
            assert (report.status == RedriveStatus.CANCELLED) == is_ended

        asked = DescribeRedriveRequest(dead, [0], with_earlier=True)
        told = await submit(client, api.DESCRIBE_REDRIVE, asked).reply()
        assert [(each.redrive_id, each.number) for each in told.redrives] == [(b"two", 2)]
        (earlier,) = told.earlier
        assert (earlier.redrive_id, earlier.note, earlier.moved) == (b"one", "the first", 2)


async def test_a_redrive_to_sources_only_leaves_messages_of_other_topics(
    mock_clock: MockClock,
) -> None:
    """The headers of a message are written by its sender: they may name any topic."""
    async with dead_letter_queue(mock_clock) as (world, broker, client, dead, orders):
        bills = await create_queue(broker, "bills", topic="bills", dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a"))
        await produce(client, topic_of(broker, "bills"), batch_of(b"b"))
        await reject(client, orders, 10)
        await reject(client, bills, 10)
        await let_move(world)
        assert await states(client, dead) == (2, 0, 0, 0)
        nowhere = AlterQueueRequest("bills", {"dead_letter_queue": "none"}, [])
        await submit(client, api.ALTER_QUEUE, nowhere).reply()

        await submit(client, api.REDRIVE, RedriveRequest(dead, [0], only_sources=True)).reply()
        await let_move(world)

        report = await describe(client, dead)
        assert (report.status, report.moved, report.skipped) == (RedriveStatus.COMPLETED, 1, 1)
        assert [each.value for each in await receive(client, orders)] == [b"a"]
        assert [each.value for each in await receive(client, dead)] == [b"b"]


async def test_a_redrive_to_sources_only_needs_a_feature_level(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader of an earlier version would move messages anywhere."""
    async with dead_letter_queue(mock_clock) as (_, broker, client, dead, _):
        assert broker._cluster is not None
        state = broker._cluster.metadata.state
        with monkeypatch.context() as patched:
            patched.setattr(state, "_feature_level", 6)
            request = RedriveRequest(dead, [0], only_sources=True)
            with pytest.raises(InvalidRequestError, match="feature level 7"):
                await submit(client, api.REDRIVE, request).reply()

        assert (await describe(client, dead)).status is None


@pytest.mark.parametrize("too_long", [{"redrive_id": b"i" * 65}, {"note": "n" * 1025}])
async def test_a_redrive_with_a_long_id_or_note_is_refused(
    mock_clock: MockClock, too_long: dict[str, Any]
) -> None:
    async with dead_letter_queue(mock_clock) as (_, _, client, dead, _):
        with pytest.raises(InvalidRequestError, match="at most 64 bytes"):
            await submit(client, api.REDRIVE, RedriveRequest(dead, [0], **too_long)).reply()


@pytest.mark.statement("b61")
async def test_a_redrive_continues_after_a_restart(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        dead = await create_queue(broker, "dead", topic="dead")
        orders = await create_queue(broker, "orders", dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        await reject(client, orders, 10)
        await let_move(world)
        await redrive(client, dead, messages_per_s=1)
        await let_move(world, 1)

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        await let_move(world)

        values = [record.value for record in await fetch_all(client, topic_of(broker))]
        assert values == [b"a", b"b", b"c"] * 2


async def test_messages_that_a_redrive_target_rejects_are_counted_and_stay(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, "small", max_message_bytes="1024")
        dead = await create_queue(broker, "dead", topic="dead")
        orders = await create_queue(broker, "orders", dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a", bytes(2000), b"c"))
        await reject(client, orders, 10)
        await let_move(world)
        assert (await describe(client, dead)).status is None

        request = RedriveRequest(dead, [0], topic_of(broker, "small"))
        raise_if((await submit(client, api.REDRIVE, request).reply()).results[0].error)
        await let_move(world)

        report = await describe(client, dead)
        assert (report.moved, report.failed, report.on_the_way) == (2, 1, 0)
        assert await states(client, dead) == (1, 0, 0, 0)


async def test_a_redrive_does_not_use_the_target_of_the_previous_one(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        first = await create_topic(client, "first")
        second = await create_topic(client, "second")
        dead = await create_queue(broker, "dead", topic="dead")
        await produce(client, topic_of(broker, "dead"), batch_of(b"a", b"b"))

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert await states(client, dead) == (2, 0, 0, 0)
        world.work.hold_reads()  # While it reads its messages ...
        await submit(client, api.REDRIVE, RedriveRequest(dead, [0], first)).reply()
        await let_happen()
        await redrive(client, dead, is_cancelled=True)
        await submit(client, api.REDRIVE, RedriveRequest(dead, [0], second)).reply()
        world.work.let_all_read()  # ... another redrive has begun.
        await let_move(world)

        assert await fetch_all(client, first) == []
        assert [r.value for r in await fetch_all(client, second)] == [b"a", b"b"]
        assert (await describe(client, dead)).moved == 2


async def test_undecodable_messages_stay_and_a_redrive_moves_the_others(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        dead = await create_queue(broker, "dead", topic="dead")
        topic = await create_topic(client, "orders")
        there = topic_of(broker, "dead")
        await produce(client, there, with_payload(batch_of(b"a", b"b"), b"nonsense"))
        await produce(client, there, batch_of(b"c"))
        await produce(client, there, with_payload(batch_of(b"d"), b"nonsense"))

        request = RedriveRequest(dead, [0], topic)
        raise_if((await submit(client, api.REDRIVE, request).reply()).results[0].error)
        await let_move(world)

        report = await describe(client, dead)
        assert (report.status, report.skipped, report.moved) == (RedriveStatus.COMPLETED, 3, 1)
        assert [r.value for r in await fetch_all(client, topic)] == [b"c"]
        assert await states(client, dead) == (3, 0, 0, 0)


async def test_malformed_origin_headers_do_not_end_a_redrive(
    mock_clock: MockClock,
) -> None:
    """Any producer can set them to any value."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        dead = await create_queue(broker, "dead", topic="dead")
        await create_topic(client, "orders")
        no_text = ((ORIGIN_TOPIC_HEADER, b"\xff"),)
        endless = ((ORIGIN_TOPIC_HEADER, b"orders"), (ORIGIN_PARTITION_HEADER, b"9" * 5000))
        await produce(client, topic_of(broker, "dead"), batch_of(b"a", headers=no_text))
        await produce(client, topic_of(broker, "dead"), batch_of(b"b", headers=endless))

        await redrive(client, dead)
        await let_move(world)

        report = await describe(client, dead)
        assert (report.status, report.skipped, report.moved) == (RedriveStatus.FAILED, 1, 1)
        assert [r.value for r in await fetch_all(client, topic_of(broker))] == [b"b"]


@pytest.mark.statement("b96")
async def test_a_redrive_fails_when_its_destination_is_deleted(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        dead = await create_queue(broker, "dead", topic="dead")
        other = await create_topic(client, "other")
        await produce(client, topic_of(broker, "dead"), batch_of(*[b"x"] * 10))
        await submit(client, api.REDRIVE, RedriveRequest(dead, [0], other, 2)).reply()
        await let_move(world, 2)

        await delete_topic(client, "other")
        await let_move(world, 20)

        report = await describe(client, dead)
        assert report.status == RedriveStatus.FAILED
        assert 2 <= report.moved < 10
        assert report.reason == "a destination was deleted; the messages that are not moved stay"
        assert (report.on_the_way, report.ended_ms is not None) == (0, True)
        assert await states(client, dead) == (10 - report.moved, 0, 0, 0)


async def test_a_redrive_waits_for_a_destination_that_is_not_known_yet(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        dead = await create_queue(broker, "dead", topic="dead")
        origin = ((ORIGIN_TOPIC_HEADER, b"gone"),)
        await produce(client, topic_of(broker, "dead"), batch_of(b"a", headers=origin))
        await submit(client, api.REDRIVE, RedriveRequest(dead, [0], b"?" * 16)).reply()
        await let_move(world)

        report = await describe(client, dead)
        assert (report.status, report.skipped, report.reason) == (RedriveStatus.RUNNING, 0, "")
        assert "maybe not yet" in str(world.told("redrive_waits")[0]["reason"])

        await redrive(client, dead, is_cancelled=True)
        await let_move(world)
        assert (await describe(client, dead)).status == RedriveStatus.CANCELLED
        assert await states(client, dead) == (1, 0, 0, 0)


@pytest.mark.statement("b96")
async def test_a_redrive_fails_when_its_destination_takes_no_messages(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        dead = await create_queue(broker, "dead", topic="dead")
        await produce(client, topic_of(broker, "dead"), batch_of(b"a"))
        await submit(client, api.REDRIVE, RedriveRequest(dead, [0], dead)).reply()
        await let_move(world)

        assert (await describe(client, dead)).status == RedriveStatus.FAILED
        assert await states(client, dead) == (1, 0, 0, 0)


@pytest.mark.statement("b96")
async def test_a_redrive_fails_after_all_moves_if_one_of_the_sources_was_deleted(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        dead = await create_queue(broker, "dead", topic="dead")
        await create_topic(client, "orders")
        for number in range(400):
            origin = b"gone" if number % 2 else b"orders"
            there = ((ORIGIN_TOPIC_HEADER, origin),)
            await produce(client, topic_of(broker, "dead"), batch_of(b"a", headers=there))

        await redrive(client, dead)
        await let_move(world, 20)

        report = await describe(client, dead)
        assert (report.status, report.moved, report.skipped) == (RedriveStatus.FAILED, 200, 200)
        assert report.reason == "there is no topic 'gone'; its messages stay"
