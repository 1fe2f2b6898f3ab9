"""From the accumulator to a real broker and back."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import World, settle
from tests.client.worlds import client_of, orders_client
from wire.errors import DeliveryTimeoutError, UnknownTopicError


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


async def test_while_a_batch_is_under_way_the_next_one_fills(autojump_clock: MockClock) -> None:
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


async def test_what_is_not_answered_in_time_fails_and_nothing_is_left_behind(
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


async def test_records_for_a_topic_that_is_not_there_fail_and_leave_others_alone(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client, client.producer() as producer:
        producer.send_nowait("nope", b"v")
        receipt = await producer.send("orders", b"v")
        with pytest.raises(UnknownTopicError):
            await producer.flush()

    assert receipt.offset == 0


async def test_a_cancelled_send_still_arrives(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client, client.producer() as producer:
        await producer.send("orders", b"first")
        with trio.CancelScope() as scope:
            scope.cancel()
            await producer.send("orders", b"second")
        await producer.flush()

        topics = await client.admin.describe_topics(["orders"])

    assert topics[0].partitions[0].log_end_offset in (1, 2)
