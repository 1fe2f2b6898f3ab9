"""Consumer with a real broker, on virtual time."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.clients import client_of, orders_client
from tidelog.client.client import Client
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.record_batch import HEADER_SIZE
from tidelog.wire.errors import (
    CorruptRecordError,
    NoPositionError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)

AT = TopicPartition("orders", 0)


async def append(client: Client, *values: bytes, partition: int = 0) -> None:
    """Append the values as one batch."""
    async with client.producer() as producer:
        await producer.send_many("orders", values, partition=partition)


async def values_of(client: Client, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            found.append(record.value)
            if len(found) == count:
                break
    return found


async def test_records_are_consumed_in_offset_order(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        await append(client, b"a", b"b")
        await append(client, b"c")

        assert await values_of(client, 3) == [b"a", b"b", b"c"]


async def test_a_consumer_without_a_position_raises_no_position_error(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client, client.consumer("orders") as consumer:
        with pytest.raises(NoPositionError):
            await anext(consumer.records())

        consumer.seek("orders", 0, 0)
        await append(client, b"a")

        record: Record = await anext(consumer.records())
        assert record.value == b"a"


async def test_latest_starts_after_the_current_records(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        await append(client, b"old")
        async with client.consumer("orders", auto_offset_reset="latest") as consumer:
            await append(client, b"new")

            record: Record = await anext(consumer.records())

        assert (record.offset, record.value) == (1, b"new")


async def test_reading_until_the_end_stops_there(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        await append(client, b"a", b"b")
        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            ends = await consumer.end_offsets()
            await append(client, b"later")

            found = [record.value async for record in consumer.records(ends)]

        assert found == [b"a", b"b"]


async def test_all_partitions_of_all_topics_are_read(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        await client.admin.create_topic("more", 3)
        async with client.producer() as producer:
            for partition in range(3):
                await producer.send("more", b"%d" % partition, partition=partition)
        await append(client, b"x")

        async with client.consumer(["orders", "more"], auto_offset_reset="earliest") as consumer:
            ends = await consumer.end_offsets()
            found = {record.value async for record in consumer.records(ends)}

        assert found == {b"0", b"1", b"2", b"x"}


async def test_a_seek_into_a_batch_hands_out_its_rest(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client:
        await append(client, b"a", b"b", b"c")
        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            consumer.seek("orders", 0, 2)

            record: Record = await anext(consumer.records())

            assert (record.offset, record.value) == (2, b"c")
            assert consumer.position("orders", 0) == 3


async def test_batches_continue_where_records_stopped(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client:
        await append(client, b"a", b"b", b"c")
        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            first: Record = await anext(consumer.records())
            batch = await anext(consumer.batches())

        assert first.value == b"a"
        assert list(batch.values) == [b"b", b"c"]


async def test_a_consumer_waits_for_records_and_is_woken_by_them(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            with trio.move_on_after(60) as scope:
                await anext(consumer.records())
            assert scope.cancelled_caught

            async with trio.open_nursery() as nursery:
                nursery.start_soon(append, client, b"late")
                record: Record = await anext(consumer.records())

        assert record.value == b"late"


async def test_an_offset_out_of_range_is_raised_with_both_bounds(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        await append(client, b"a", b"b")
        await client.admin.delete_records("orders", 0, 1)
        async with client.consumer("orders", auto_offset_reset="latest") as consumer:
            for offset in (0, 3):
                consumer.seek("orders", 0, offset)
                with pytest.raises(OffsetOutOfRangeError) as caught:
                    await anext(consumer.records())
                assert caught.value.detail("log_start_offset") == 1
                assert caught.value.detail("log_end_offset") == 2
                assert caught.value.at == AT

            consumer.seek("orders", 0, 1)
            record: Record = await anext(consumer.records())
            assert record.value == b"b"


@pytest.mark.parametrize("call", ["not assigned", "negative"])
async def test_an_invalid_seek_is_refused(autojump_clock: MockClock, call: str) -> None:
    async with orders_client(autojump_clock) as client, client.consumer("orders") as consumer:
        partition, offset = (7, 0) if call == "not assigned" else (0, -1)
        with pytest.raises(ValueError, match=call if call == "negative" else "not assigned"):
            consumer.seek("orders", partition, offset)


async def test_consuming_a_deleted_topic_raises_unknown_topic(autojump_clock: MockClock) -> None:
    async with (
        orders_client(autojump_clock) as client,
        client.consumer("orders", auto_offset_reset="earliest") as consumer,
    ):
        await client.admin.delete_topic("orders")

        with pytest.raises(UnknownTopicError):
            await anext(consumer.records())


async def test_a_member_says_once_that_its_topic_is_unknown(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")
        await append(client, b"a")
        async with client.consumer("orders", group_id="g", auto_offset_reset="earliest") as member:
            record: Record = await anext(member.records())
            assert record.value == b"a"
            assert not world.told("group.topic_unknown")

            await client.admin.delete_topic("orders")
            await trio.sleep(30)

    (told,) = world.told("group.topic_unknown")
    assert told["topic"] == "orders"


async def test_a_corrupt_batch_is_raised_and_can_be_skipped(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")
        await append(client, b"a", b"b")
        await append(client, b"c")
    restarted = world.after_crash()
    ((path, _),) = restarted.segments()
    restarted.disk.flip_bit(path, 64 + HEADER_SIZE + 3, 1)

    async with (
        client_of(restarted) as client,
        client.consumer("orders", auto_offset_reset="earliest") as consumer,
    ):
        with pytest.raises(CorruptRecordError) as caught:
            await anext(consumer.records())
        next_offset = caught.value.detail("next_offset")
        assert next_offset == 2
        assert caught.value.at == AT

        consumer.seek("orders", 0, next_offset)
        record: Record = await anext(consumer.records())
        assert record.value == b"c"


async def test_a_closed_consumer_says_how_to_open_one(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        consumer = client.consumer("orders", auto_offset_reset="earliest")

        with pytest.raises(trio.ClosedResourceError, match="async with"):
            await anext(consumer.records())
