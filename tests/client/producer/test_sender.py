"""Sender between the accumulator and a real broker."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import World, settle
from tests.client.clients import client_of, orders_client
from tidelog.client.client import connect
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.wire.errors import DeliveryTimeoutError, RecordTooLargeError, UnknownTopicError


async def test_batches_of_several_partitions_share_a_request(autojump_clock: MockClock) -> None:
    async with (
        orders_client(autojump_clock, 8) as client,
        client.producer() as producer,
    ):
        await producer.send("orders", b"first", partition=0)
        for partition in range(8):
            producer.send_nowait("orders", b"v", partition=partition)
        await producer.flush()

        topics = await client.admin.describe_topics(["orders"])

    ends = [part.log_end_offset for part in topics[0].partitions]
    assert ends == [2, 1, 1, 1, 1, 1, 1, 1]


async def test_the_next_batch_fills_while_one_is_in_flight(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")
        async with client.producer() as producer:
            await producer.send("orders", b"first")
            world.work.hold_syncs()
            producer.send_nowait("orders", b"alone")
            await settle()
            for _ in range(100):
                producer.send_nowait("orders", b"together")
            await settle()
            under_way = producer.statistics().in_flight_request_count
            world.work.let_all_sync()
            await producer.flush()

        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            ends = await consumer.end_offsets()
            sizes = [len(batch) async for batch in consumer.batches(ends)]

    assert under_way == 1
    assert sizes == [1, 1, 100]


async def test_an_unanswered_produce_fails_after_its_timeout(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")
        async with client.producer(delivery_timeout=3.0) as producer:
            world.work.hold_syncs()
            with pytest.raises(DeliveryTimeoutError):
                await producer.send("orders", b"v")
            statistics = producer.statistics()
            world.work.let_all_sync()

    assert statistics.unsettled_record_count == 0
    assert statistics.buffered_bytes == 0


async def test_records_for_an_unknown_topic_fail_alone(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client, client.producer() as producer:
        producer.send_nowait("nope", b"v")
        receipt = await producer.send("orders", b"v")
        with pytest.raises(UnknownTopicError):
            await producer.flush()

    assert receipt.offset == 0


async def test_a_cancelled_send_is_still_delivered(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client, client.producer() as producer:
        await producer.send("orders", b"first")
        with trio.CancelScope() as scope:
            scope.cancel()
            await producer.send("orders", b"second")
        await producer.flush()

        topics = await client.admin.describe_topics(["orders"])

    assert topics[0].partitions[0].log_end_offset in (1, 2)


async def send_one(producer: Producer, value: bytes) -> None:
    await producer.send("orders", value, partition=0)


async def send_column(producer: Producer, value: bytes) -> None:
    await producer.send_many("orders", [value], partition=0)


@pytest.mark.parametrize("send", [send_one, send_column])
async def test_flush_raises_the_early_failure_of_a_cancelled_send(
    autojump_clock: MockClock, send: Callable[[Producer, bytes], Awaitable[None]]
) -> None:
    world = World(autojump_clock)
    async with (
        world.broker(socket_request_max_bytes=2 << 20),
        connect("broker:8433", env=world.env) as client,
    ):
        await client.admin.create_topic("orders")
        async with client.producer(batch_size=4_000_000) as producer:
            await producer.send("orders", b"first", partition=0)
            with trio.CancelScope() as scope:
                scope.cancel()
                await send(producer, bytes(3_000_000))
            assert scope.cancelled_caught

            with pytest.raises(RecordTooLargeError) as caught:
                await producer.flush()

    assert caught.value.__notes__ == [
        "records that no call waited for and that were not acknowledged: 1"
    ]


async def test_flush_raises_the_failure_of_a_send_cancelled_later(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")
        async with client.producer(buffer_memory=1 << 20) as producer:
            await producer.send("orders", b"first")
            records = [ProducerRecord("orders", bytes(size)) for size in (2 << 20, 1)]
            world.work.hold_syncs()
            with trio.move_on_after(1):
                await producer.send_records("orders", records)
            world.work.let_all_sync()

            with pytest.raises(RecordTooLargeError):
                await producer.flush()


async def test_tasks_share_batches_also_behind_a_call_that_was_alone(
    autojump_clock: MockClock,
) -> None:
    async def send_several() -> None:
        for _ in range(20):
            await producer.send("orders", b"v")

    async with orders_client(autojump_clock) as client, client.producer() as producer:
        for _ in range(3):
            await producer.send("orders", b"alone")
        before = client.statistics().producers.topics["orders"].batches
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(send_several)
        after = client.statistics().producers.topics["orders"].batches

    # The first call of the first task is alone, and its second one joins the others.
    assert after - before <= 20 + 2
