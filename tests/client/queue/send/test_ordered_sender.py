"""Ordered sender to queues whose brokers inspect messages, with lost replies."""

# Uses private attributes of clients.
# pyright: reportPrivateUsage=false

from random import Random

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.clients import client_of
from tests.client.fake_cluster import fronted_client
from tests.client.queue_fixture import drain, lead, made, queue_of, values, work_queue
from tidelog.client.client import Client
from tidelog.client.errors import ClosedError
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.producer.receipt import Receipt
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
from tidelog.wire.messages.queues import DEDUPLICATION_ID_HEADER
from tidelog.wire.protocol import api


def numbered(count: int, *, group: bytes = b"g") -> list[OutgoingMessage]:
    return [OutgoingMessage(value=b"%d" % number, group=group) for number in range(count)]


async def all_of(queue: Queue) -> list[Message]:
    found: list[Message] = []
    while messages := await queue.receive(100, wait=0):
        await queue.delete_batch(messages)
        found += messages
    return found


async def test_a_duplicate_send_returns_the_receipt_of_the_original(
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


async def test_a_batch_may_contain_duplicates(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, fifo=True, content_based_deduplication="on") as (
        _,
        queue,
    ):
        await queue.send_batch(numbered(3))
        receipts = await queue.send_batch(numbered(5))

        assert [each.is_duplicate for each in receipts] == [True] * 3 + [False] * 2
        assert values(await drain(queue)) == [b"%d" % number for number in range(5)]


async def test_a_fifo_send_with_a_lost_reply_is_stored_once(
    autojump_clock: MockClock,
) -> None:
    """With an id or without, and with leader changes meanwhile."""
    async with queue_of(autojump_clock, (1, 2), fifo=True) as (queue, cluster):
        await queue.send(b"before", group=b"g")
        for number in range(6):
            for front in cluster.fronts.values():
                front.lost_count = 2
            sent_id = str(number) if number % 2 else None
            await queue.send(b"%d" % number, group=b"g", deduplication_id=sent_id)
            lead(cluster, 1 + number % 2)

        assert values(await all_of(queue)) == [b"before"] + [b"%d" % n for n in range(6)]


async def test_concurrent_fifo_sends_share_requests(
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


async def test_tasks_that_send_again_and_again_share_requests(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, (1,), fifo=True) as (queue, cluster):

        async def send() -> None:
            for number in range(20):
                await queue.send(b"%d" % number, group=b"g")

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(send)
        assert len(await all_of(queue)) == 1000
        assert cluster.fronts[1].asked.count(api.SEND) <= 30  # type: ignore[arg-type]


async def test_messages_of_a_cancelled_call_are_sent_before_later_ones(
    autojump_clock: MockClock,
) -> None:
    """Calls beside it, which wait for their turn, get their receipts."""
    async with queue_of(autojump_clock, (1,), fifo=True) as (queue, cluster):
        await queue.send(b"before", group=b"g")
        receipts: list[Receipt] = []

        async def send(value: bytes) -> None:
            receipts.append(await queue.send(value, group=b"g"))

        async def send_and_be_cancelled() -> None:
            with cancelled:
                await send(b"cancelled")

        cluster.fronts[1].lost_count = 2
        cancelled = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_and_be_cancelled)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(send, b"after")
            await trio.testing.wait_all_tasks_blocked()
            cancelled.cancel()

        assert len(receipts) == 1
        assert values(await all_of(queue)) == [b"before", b"cancelled", b"after"]


async def test_a_send_rate_delays_the_next_message_and_not_the_call(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,), send_rate="1") as (queue, _):
        times: list[float] = []
        for _ in range(4):
            await queue.send(b"x")
            times.append(trio.current_time())
        assert times[-1] - times[0] > 1
        assert len(await all_of(queue)) == 4


@pytest.mark.parametrize("fifo", [True, False])
async def test_an_empty_batch_lets_other_tasks_run(autojump_clock: MockClock, fifo: bool) -> None:
    async with work_queue(autojump_clock, fifo=fifo) as (_, queue):
        await queue.send(b"x", group=b"g")
        with trio.testing.assert_checkpoints():
            assert await queue.send_batch([]) == []


async def test_a_send_ends_when_the_client_is_closed(autojump_clock: MockClock) -> None:
    async with (
        queue_of(autojump_clock, (1,), fifo=True) as (_, cluster),
        trio.open_nursery() as nursery,
    ):

        async def send(client: Client) -> None:
            with pytest.raises(ClosedError):
                await client.queue("work").send(b"x", group=b"g")

        async with fronted_client(cluster, (1,)) as client:
            await client.queue("work").send(b"before", group=b"g")
            cluster.fronts[1].lost_count = 1_000
            nursery.start_soon(send, client)
            await trio.testing.wait_all_tasks_blocked()


async def test_consecutive_batches_of_a_group_stay_in_order(
    autojump_clock: MockClock,
) -> None:
    """With several in flight, lost replies, and leader changes."""
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


async def test_a_message_too_large_fails_alone_in_a_fifo_batch(autojump_clock: MockClock) -> None:
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


async def test_a_fifo_sender_recovers_from_a_forgotten_producer(
    autojump_clock: MockClock,
) -> None:
    """This happens after a day without sends."""
    async with work_queue(autojump_clock, fifo=True) as (_, queue):
        await queue.send(b"one", group=b"g")
        (stream,) = queue._publisher._ordered_sender()._streams.values()
        assert stream.identity is not None
        stream.identity = msgspec.structs.replace(stream.identity, producer_id=1 << 40)

        await queue.send_batch(numbered(2))

        assert values(await all_of(queue)) == [b"one", b"0", b"1"]


async def test_a_refused_fifo_message_raises_one_line(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, fifo=True) as (client, queue):
        with pytest.raises(InvalidRequestError, match="a message to a FIFO queue needs a group"):
            await queue.send(b"v", deduplication_id="1")
        plain = await made(client, "plain")
        with pytest.raises(InvalidRequestError, match="only FIFO queues take deduplication ids"):
            await plain.send(b"v", deduplication_id="1")


async def test_a_message_that_the_broker_refuses_affects_no_other_one(
    autojump_clock: MockClock,
) -> None:
    """The client takes the queue for another kind, so it does not refuse them itself."""
    async with work_queue(autojump_clock, send_rate=1_000_000) as (_, queue):
        description = await queue._calls.describe()
        records = [
            ProducerRecord(
                "work", b"%d" % n, headers=((DEDUPLICATION_ID_HEADER, b"id"),) * (n % 4 == 1)
            )
            for n in range(9)
        ]

        results = await queue._publisher._ordered_sender().send(description, records)

        refused = [n for n, each in enumerate(results) if isinstance(each, InvalidRequestError)]
        assert refused == [1, 5]
        assert values(await all_of(queue)) == [b"%d" % n for n in range(9) if n % 4 != 1]


async def test_a_throttled_sender_loses_no_messages(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, send_rate=100) as (client, queue):
        other = Client(client._cluster).queue("work")  # Without the throttle state of `queue`.
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


async def test_sends_to_a_deleted_queue_fail(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, fifo=True) as (client, queue):
        await queue.send(b"a", group=b"g")
        await client.admin.delete_queue("work")
        with pytest.raises(UnknownQueueError):
            await queue.send(b"b", group=b"g")
        await made(client, "work", fifo=True)
        assert (await queue.send(b"c", group=b"g")).offset == 1


async def test_an_undeliverable_fifo_message_fails_with_its_outcome(
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


async def test_groups_choose_the_partition_of_a_fifo_queue(
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
