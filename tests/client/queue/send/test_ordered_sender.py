"""Sending to queues whose brokers look at each message, also when answers are lost."""

# Looks into clients, which nobody else has to.
# pyright: reportPrivateUsage=false

from random import Random

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.clients import client_of
from tests.client.fake_cluster import fronted_client
from tests.client.queue_fixture import drain, lead, made, queue_of, values, work_queue
from tidelog.client.client import Client
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.errors import (
    BatchError,
    DeliveryTimeoutError,
    InvalidRequestError,
    NotEnoughReplicasError,
    RecordTooLargeError,
    UnknownQueueError,
)
from tidelog.wire.protocol import api


def numbered(count: int, *, group: bytes = b"g") -> list[OutgoingMessage]:
    return [OutgoingMessage(value=b"%d" % number, group=group) for number in range(count)]


async def all_of(queue: Queue) -> list[Message]:
    found: list[Message] = []
    while messages := await queue.receive(100, wait=0):
        await queue.delete_batch(messages)
        found += messages
    return found


async def test_a_message_that_was_sent_before_is_told_where_it_is(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, fifo=True) as (_, queue):
        first = await queue.send(b"a", group=b"g", deduplication_id="1")
        again = await queue.send(b"b", group=b"g", deduplication_id="1")

        assert (first.message_id, first.is_duplicate) == ("0-0", False)
        assert (again.message_id, again.is_duplicate) == ("0-0", True)
        (message,) = await drain(queue)
        assert (message.value, message.message_id) == (b"a", first.message_id)
        assert message.timestamp_ms == first.timestamp_ms == again.timestamp_ms


async def test_in_one_batch_some_may_have_been_sent_before(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, fifo=True, content_based_deduplication="on") as (
        _,
        queue,
    ):
        await queue.send_batch(numbered(3))
        receipts = await queue.send_batch(numbered(5))

        assert [each.is_duplicate for each in receipts] == [True] * 3 + [False] * 2
        assert values(await drain(queue)) == [b"%d" % number for number in range(5)]


async def test_a_message_is_sent_once_although_its_answer_was_lost(
    autojump_clock: MockClock,
) -> None:
    """With an id or without, and though leaders change meanwhile."""
    async with queue_of(autojump_clock, (1, 2), fifo=True) as (queue, cluster):
        await queue.send(b"before", group=b"g")
        for number in range(6):
            for front in cluster.fronts.values():
                front.lost_count = 2
            sent_id = str(number) if number % 2 else None
            await queue.send(b"%d" % number, group=b"g", deduplication_id=sent_id)
            lead(cluster, 1 + number % 2)

        assert values(await all_of(queue)) == [b"before"] + [b"%d" % n for n in range(6)]


async def test_what_many_tasks_send_goes_together_in_a_few_requests(
    autojump_clock: MockClock,
) -> None:
    random = Random(1)
    async with queue_of(autojump_clock, (1,), fifo=True) as (queue, cluster):
        groups = [b"a", b"b", b"c"]

        async def send(number: int) -> None:
            await queue.send(b"%d" % number, group=groups[number % 3])

        cluster.fronts[1].lost_count = 2
        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(send, number)
                if random.random() < 0.01:
                    await trio.sleep(0.01)
        found = await all_of(queue)

        assert len(found) == 300
        assert cluster.fronts[1].asked.count(api.SEND) <= 20  # type: ignore[arg-type]


async def test_batches_of_a_group_that_are_sent_one_behind_the_other_stay_in_order(
    autojump_clock: MockClock,
) -> None:
    """While several are under way, and answers are lost, and leaders change."""
    async with queue_of(autojump_clock, (1, 2), fifo=True) as (queue, cluster):
        async with trio.open_nursery() as nursery:
            for number in range(10):
                batch = [
                    OutgoingMessage(value=b"%d" % (10 * number + at), group=b"g")
                    for at in range(10)
                ]
                nursery.start_soon(queue.send_batch, batch)
                await trio.testing.wait_all_tasks_blocked()
                cluster.fronts[1 + number % 2].lost_count = number % 3
                if number % 4 == 3:
                    lead(cluster, 1 + number % 2)

        assert [int(each or b"") for each in values(await all_of(queue))] == list(range(100))


async def test_what_is_too_large_fails_alone(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_topic("work", 1, config={"max_message_bytes": "20kB"})
        queue = await made(client, "work", fifo=True, topic="work")
        large = OutgoingMessage(value=b"x" * 21_000, group=b"g")

        with pytest.raises(BatchError, match="1 of 3") as failure:
            await queue.send_batch([*numbered(1), large, *numbered(1)])
        assert isinstance(failure.value.errors[1], RecordTooLargeError)
        assert values(await drain(queue)) == [b"0", b"0"]
        await queue.send_batch([large])
        assert values(await drain(queue)) == [large.value]
        with pytest.raises(RecordTooLargeError):
            await queue.send(b"", group=b"g" * (17 << 20))
        assert await queue.send_batch([]) == []


async def test_a_sender_that_its_partition_has_forgotten_begins_anew(
    autojump_clock: MockClock,
) -> None:
    """As it does when nothing was sent for a day."""
    async with work_queue(autojump_clock, fifo=True) as (_, queue):
        await queue.send(b"one", group=b"g")
        (lane,) = queue._publisher._ordered_sender()._streams.values()
        assert lane.identity is not None
        lane.identity = msgspec.structs.replace(lane.identity, producer_id=1 << 40)

        await queue.send_batch(numbered(2))

        assert values(await all_of(queue)) == [b"one", b"0", b"1"]


async def test_what_a_queue_does_not_take_is_one_clear_line(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, fifo=True) as (client, queue):
        with pytest.raises(InvalidRequestError, match="a message to a FIFO queue needs a group"):
            await queue.send(b"v", deduplication_id="1")
        plain = await made(client, "plain")
        with pytest.raises(InvalidRequestError, match="only FIFO queues take deduplication ids"):
            await plain.send(b"v", deduplication_id="1")


async def test_who_sends_too_much_is_slowed_down_and_loses_nothing(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, send_rate=100) as (client, queue):
        other = Client(client._cluster).queue("work")  # Knows nothing of what `queue` was told.
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(400):
                sender = queue if number % 2 else other
                nursery.start_soon(sender.send, b"%d" % number)
                await trio.sleep(0.001)
        await queue.send(b"when all that is paid back")
        took = trio.current_time() - began

        assert 2.99 <= took <= 6
        assert len(await all_of(queue)) == 401


async def test_a_queue_that_is_deleted_is_sent_to_no_more(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, fifo=True) as (client, queue):
        await queue.send(b"a", group=b"g")
        await client.admin.delete_queue("work")
        with pytest.raises(UnknownQueueError):
            await queue.send(b"b", group=b"g")
        await made(client, "work", fifo=True)
        assert (await queue.send(b"c", group=b"g")).offset == 1


async def test_what_nobody_takes_in_time_is_told_what_became_of_it(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,), fifo=True) as (queue, cluster):
        await queue.send(b"a", group=b"g")
        cluster.fronts[1].refusal = NotEnoughReplicasError("too few")
        with pytest.raises(DeliveryTimeoutError, match=r"are not in the queue.*too few"):
            await queue.send(b"b", group=b"g")
        cluster.fronts[1].refusal = None
        cluster.fronts[1].lost_count = 1_000_000
        with pytest.raises(DeliveryTimeoutError, match="may or may not be in the queue"):
            await queue.send(b"c", group=b"g")
        cluster.fronts[1].lost_count = 0
        await queue.send(b"d", group=b"g")

        assert values(await all_of(queue)) == [b"a", b"c", b"d"]


async def test_a_queue_of_several_partitions_is_sent_to_by_groups(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1, 2), fifo=True) as (queue, cluster):
        async with fronted_client(cluster, (1, 2)) as other:
            groups = [b"%d" % number for number in range(20)]
            first = await queue.send_batch(
                OutgoingMessage(value=b"v", group=group, deduplication_id="x") for group in groups
            )
            again = await other.queue("work").send_batch(
                OutgoingMessage(value=b"v", group=group, deduplication_id="x") for group in groups
            )

        assert [each.message_id for each in first] == [each.message_id for each in again]
        assert {each.partition for each in first} == {0, 1}
        assert all(each.is_duplicate for each in again)
