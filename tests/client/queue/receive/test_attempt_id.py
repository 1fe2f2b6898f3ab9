"""Receives with an attempt id that the caller chose, on several brokers."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.clients import client_of
from tests.client.queue_fixture import lead, left, made, queue_of, values, work_queue
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.attempt_id import ATTEMPT_ID_BYTES, attempt_id_on_wire
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.errors import InvalidRequestError, NotLeaderError


async def fill_groups(queue: Queue, count: int, groups: int = 20) -> None:
    """Send numbers to a FIFO queue, spread over its partitions by their groups."""
    await queue.send_batch(
        OutgoingMessage(value=b"%d" % n, group=b"group %d" % (n % groups)) for n in range(count)
    )


def places(messages: list[Message]) -> list[tuple[int, int, bytes]]:
    return sorted(message.place for message in messages)


def test_an_attempt_id_has_1_to_128_bytes_and_at_most_16_on_the_wire() -> None:
    assert attempt_id_on_wire("run-7") == b"run-7"
    assert attempt_id_on_wire(b"x" * 16) == b"x" * 16
    uuid = "123e4567-e89b-12d3-a456-426614174000"
    assert len(attempt_id_on_wire(uuid)) == ATTEMPT_ID_BYTES
    assert attempt_id_on_wire(uuid) == attempt_id_on_wire(uuid.encode())
    assert attempt_id_on_wire(uuid) != attempt_id_on_wire(uuid.replace("1", "2"))
    for wrong in ("", "x" * 129):
        with pytest.raises(ValueError, match="1 to 128 bytes"):
            attempt_id_on_wire(wrong)
    with pytest.raises(TypeError, match="not int"):
        attempt_id_on_wire(7)  # type: ignore[arg-type]


async def test_the_same_attempt_id_returns_the_same_messages_with_a_new_visibility_timeout(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, fifo=True) as (client, queue):
        await fill_groups(queue, 30)
        first = await queue.receive(5, attempt_id="a")
        await trio.sleep(29)

        again = await client.queue("work").receive(5, attempt_id="a")
        fewer = await queue.receive(2, attempt_id="a")
        other = await queue.receive(5, attempt_id="b")

        assert places(again) == places(fewer) == places(first)
        assert {message.receive_count for message in again} == {1}
        assert not set(places(other)) & set(places(first))
        await trio.sleep(29)
        await queue.delete_batch(again)


async def test_an_attempt_is_repeated_at_the_broker_that_has_its_messages(
    autojump_clock: MockClock,
) -> None:
    """New messages of another broker, which is asked first, must not hide them."""
    async with queue_of(autojump_clock, (1, 2, 3), fifo=True) as (queue, _):
        await fill_groups(queue, 60)
        for number in range(12):
            first = await queue.receive(7, attempt_id=b"%d" % number)
            assert len(first) == 7
            for _ in range(3):
                assert places(await queue.receive(7, attempt_id=b"%d" % number)) == places(first)
            await queue.delete_batch(first)
            if number == 6:
                await fill_groups(queue, 40)


async def test_an_attempt_over_several_partitions_of_one_broker_is_repeated_whole(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, partitions=4, fifo=True) as (_, queue):
        await fill_groups(queue, 20)
        first = await queue.receive(20, attempt_id="a")
        assert len({message.partition for message in first}) == 4
        await fill_groups(queue, 100, groups=100)

        assert places(await queue.receive(20, attempt_id="a")) == places(first)


async def test_a_repetition_waits_for_every_partition(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, fifo=True) as (queue, cluster):
        await fill_groups(queue, 20)
        first = await queue.receive(18, attempt_id="a", visibility_timeout=100)
        assert {message.partition for message in first} == {0, 1}
        cluster.fronts[2].refusal = NotLeaderError("not me")

        with pytest.raises(NotLeaderError):
            await queue.receive(18, attempt_id="a", visibility_timeout=100)

        lead(cluster, 1)
        again = await queue.receive(18, attempt_id="a", visibility_timeout=100)
        assert places(again) == places(first)


async def test_messages_of_a_cancelled_attempt_wait_for_its_repetition(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        queue = await made(client, "work", partitions=2, fifo=True)
        await fill_groups(queue, 1)
        world.work.hold_syncs()
        with trio.move_on_after(3):
            await queue.receive(attempt_id="a", wait=20)
        world.work.let_all_sync()
        await trio.sleep(2)
        assert await left(queue) == (0, 1)

        (message,) = await queue.receive(attempt_id="a", wait=0)

        assert (message.value, message.receive_count) == (b"0", 1)


async def test_a_settled_message_ends_its_attempt(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, fifo=True) as (queue, _):
        await fill_groups(queue, 6, groups=6)
        first = await queue.receive(3, attempt_id="a")
        await queue.delete_batch(first)

        second = await queue.receive(3, attempt_id="a")

        assert sorted(values(first) + values(second)) == sorted(b"%d" % n for n in range(6))  # type: ignore[type-var]


async def test_only_fifo_queues_take_attempt_ids(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        with pytest.raises(InvalidRequestError, match="queue 'work' is not FIFO: only receives of"):
            await queue.receive(attempt_id="a")
