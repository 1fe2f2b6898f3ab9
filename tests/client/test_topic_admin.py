"""Administration of topics through the client, carried out by a real broker."""

import pytest
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.worlds import client_of
from wire.errors import OffsetOutOfRangeError, UnknownTopicError


async def test_a_created_topic_is_described_with_its_settings_and_extent(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders", 2, retention_ms=3_600_000, durability="fsync")

        (topic,) = await client.admin.describe_topics(["orders"])

    assert topic.config["retention_ms"] == "3600000"
    assert topic.config_overrides == ["durability", "retention_ms"]
    assert [(part.log_start_offset, part.high_watermark) for part in topic.partitions] == [
        (0, 0),
        (0, 0),
    ]


async def test_topics_are_listed_by_name(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("b")
        await client.admin.create_topic("a")

        assert await client.admin.list_topics() == ["a", "b"]


async def test_validating_creates_nothing(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        reply = await client.admin.create_topic("orders", 3, validate_only=True)

        assert reply.partition_count == 3
        assert await client.admin.list_topics() == []


async def test_settings_are_set_and_reset(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders", segment_ms="1h")

        settings = await client.admin.alter_topic(
            "orders", set={"retention_ms": "2h"}, reset=["segment_ms"]
        )

    assert settings["retention_ms"] == "2h"
    assert settings["segment_ms"] == "7d"


async def test_a_deleted_topic_is_unknown(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")
        await client.admin.delete_topic("orders")

        with pytest.raises(UnknownTopicError):
            await client.admin.describe_topics(["orders"])


async def test_deleted_records_move_the_start_of_the_log(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")
        async with client.producer() as producer:
            await producer.send_many("orders", [b"v"] * 10)

        reply = await client.admin.delete_records("orders", 0, 4)
        everything = await client.admin.delete_records("orders", 0, None)

        assert reply.log_start_offset == 4
        assert everything.log_start_offset == 10
        with pytest.raises(OffsetOutOfRangeError):
            await client.admin.delete_records("orders", 0, 11)
