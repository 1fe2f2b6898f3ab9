"""Lookup of offsets by place and time, answered by a real broker."""

import pytest
from trio.testing import MockClock

from tests.broker.world import START_MS, World
from tests.client.clients import client_of
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import UnknownPartitionError, UnknownTopicError

AT = TopicPartition("orders", 0)


async def test_offsets_are_found_by_place_and_by_time(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders", 2)
        async with client.producer() as producer:
            for number in range(4):
                await producer.send(
                    "orders", b"v", partition=0, timestamp_ms=START_MS + 10 * number
                )

        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            beginning = await consumer.beginning_offsets()
            end = await consumer.end_offsets()
            await consumer.seek_to_time(START_MS + 15)
            found = {part: consumer.position(*part) for part in consumer.assignment}

    other = TopicPartition("orders", 1)
    assert beginning == {AT: 0, other: 0}
    assert end == {AT: 4, other: 0}
    assert found == {AT: 2, other: 0}


async def test_a_time_after_the_last_record_is_the_log_end(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")
        async with client.producer() as producer:
            await producer.send("orders", b"v", timestamp_ms=START_MS)

        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            await consumer.seek_to_time(START_MS + 1)

            assert consumer.position("orders", 0) == 1


async def test_offsets_of_an_unknown_topic_or_partition_fail(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")

        with pytest.raises(UnknownTopicError):
            async with client.consumer("nope"):
                pass
        with pytest.raises(UnknownPartitionError):
            async with client.consumer("orders", partitions=[1]):
                pass
