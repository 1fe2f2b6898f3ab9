"""Peek: returns messages without receiving them, and does not count."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.queue_fixture import fill, lead, made, queue_of, work_queue
from tidelog.client.queue.inspect.peek import PeekedMessage, PeekQuery, QueuePeeker
from tidelog.wire.errors import UnknownQueueError, UnknownTopicError, UnsupportedVersionError
from tidelog.wire.messages.queues import MessageState
from tidelog.wire.protocol import api


async def test_a_peek_returns_messages_with_their_states(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, partitions=2) as (client, queue):
        await fill(queue, 10)
        await queue.send(b"later", key=b"key 1", delay=60)
        taken = await client.queue("work", holder="worker 7").receive(3, visibility_timeout=50)
        await taken[0].release(30, reason="busy")

        seen = await queue.peek(100)

        assert len(seen) == 11
        places = [(each.record.partition, each.record.offset) for each in seen]
        assert places == sorted(places)
        states = [each.state for each in seen]
        assert states.count(MessageState.IN_FLIGHT) == 2
        assert states.count(MessageState.DELAYED) == 2
        (released,) = (each for each in seen if each.reason)
        assert (released.reason, released.receive_count) == ("busy", 1)
        assert released.message_id == taken[0].message_id
        assert released.visible_at_ms is not None
        leased = await queue.in_flight()
        assert {each.record.value for each in leased} == {each.value for each in taken[1:]}
        assert {each.holder for each in leased} == {"worker 7"}
        assert [each.record.value for each in await queue.peek(2)] == [
            each.record.value for each in seen[:2]
        ]
        assert len(await queue.receive(100)) == 7, "looking took nothing"


async def test_a_peek_asks_the_leader_of_each_partition(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await fill(queue, 2500)
        assert len(await queue.peek(10_000)) == 2500, "page by page"
        cluster.fronts[2].stop()
        lead(cluster, 1)
        assert len(await queue.peek(10_000)) == 2500


async def test_dead_letters_without_a_target_are_listed(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 2)
        messages = await queue.receive()
        await messages[0].reject("no such flight")
        (dead,) = await queue.dead_letters()
        assert (dead.record.value, dead.reason) == (messages[0].value, "no such flight")


async def test_dead_letters_of_other_queues_are_not_listed(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        dead = await made(client, "dead")
        await client.admin.alter_queue("work", set={"dead_letter_queue": "dead"})
        await dead.send(b"written here")
        fresh = client.queue("work")
        assert await fresh.dead_letters() == []
        with pytest.raises(UnknownQueueError):
            await client.queue("nope").peek()
        assert await queue.peek() == []


async def test_a_dead_letter_has_its_origin_and_is_redriven_there(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        dead = await made(client, "dead")
        await client.admin.alter_queue("work", set={"dead_letter_queue": "dead"})
        await queue.send(b"cancelled", headers=[("trace", b"1")])
        (message,) = await queue.receive()
        await message.reject("no delay value")

        (letter,) = await dead.receive(wait=20)
        assert letter.value == b"cancelled"
        origin = letter.origin
        assert origin is not None
        assert (origin.queue, origin.topic, origin.partition, origin.offset) == ("work",) * 2 + (
            0,
            0,
        )
        assert (origin.receive_count, origin.reason) == (1, "no delay value")
        await letter.release()
        (seen,) = await queue.dead_letters()
        assert seen.origin == origin

        assert await dead.redrive(only_from="work") == 1
        (again,) = await queue.receive(wait=20)
        assert again.value == b"cancelled"
        report = await dead.redrive_status()
        while not report.is_over:
            await trio.sleep(0.1)
            report = await dead.redrive_status()
        assert (report.moved, report.to_move, report.left, report.failed) == (1, 1, 0, 0)
        assert report.only_from == "work"
        await dead.cancel_redrive()
        with pytest.raises(UnknownTopicError):
            await dead.redrive(to_topic="nope")


async def test_an_older_broker_gets_no_redrive_whose_id_or_restriction_it_would_skip(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.REDRIVE, "max_version", 1)
    async with work_queue(autojump_clock) as (client, queue):
        dead = await made(client, "dead")
        await client.admin.alter_queue("work", set={"dead_letter_queue": "dead"})
        await queue.send(b"poison")
        (message,) = await queue.receive()
        await message.reject("broken")
        for refused in (
            dead.redrive(redrive_id=b"1"),
            dead.redrive(only_sources=True),
            dead.cancel_redrive(b"1"),
        ):
            with pytest.raises(UnsupportedVersionError, match="would skip the id or the restri"):
                await refused
        assert (await dead.redrive_status()).status is None
        await dead.redrive()
        await dead.cancel_redrive()


@pytest.mark.statement("b55")
async def test_a_dead_letter_moved_between_peeks_is_listed_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        await queue.send_batch([b"poison", b"well"])
        (message, _) = await queue.receive()
        await message.reject("broken")
        before = await queue.dead_letters()
        dead = await made(client, "dead")
        await client.admin.alter_queue("work", set={"dead_letter_queue": "dead"})
        assert await dead.receive(wait=60, visibility_timeout=0)
        look = QueuePeeker.peek

        async def early(looker: QueuePeeker, order: PeekQuery) -> list[PeekedMessage]:
            return before if order.states else await look(looker, order)

        monkeypatch.setattr(QueuePeeker, "peek", early)
        (seen,) = await queue.dead_letters()

        assert seen.origin is not None
        assert (before[0].state, seen.state) == (MessageState.DEAD, MessageState.VISIBLE)
