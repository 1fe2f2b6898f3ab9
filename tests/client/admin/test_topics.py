"""Administration of topics through the client, executed by a real broker."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import ADDRESS, World
from tests.client.clients import client_of
from tidelog.client.admin.admin import Admin
from tidelog.client.client import connect
from tidelog.wire.errors import (
    InvalidConfigError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    PartitionFullError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
)


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


async def test_very_many_topics_are_described_in_several_requests(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")

        (topic,) = await client.admin.describe_topics(["orders"] * 1_001)
        assert topic.name == "orders"
        with pytest.raises(UnknownTopicError, match="'t0'"):
            await client.admin.topic_usage([f"t{number}" for number in range(1_501)])


async def test_topics_are_listed_by_name(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("b")
        await client.admin.create_topic("a")

        assert await client.admin.list_topics() == ["a", "b"]


async def test_names_are_listed_by_prefix_and_page(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        admin = client.admin
        for name in ("orders-2", "orders-1", "payments", "orders-3"):
            await admin.create_topic(name)
        await admin.create_queue("orders-queue", topic="payments")

        assert await admin.list_topics("orders-") == ["orders-1", "orders-2", "orders-3"]
        assert await admin.list_topics("orders-", limit=2) == ["orders-1", "orders-2"]
        assert await admin.list_topics("orders-", limit=2, after="orders-2") == ["orders-3"]
        assert await admin.list_topics(after="orders-3") == ["payments"]
        assert await admin.list_queues("ord", limit=5_000) == ["orders-queue"]
        assert await admin.list_queues("x") == []
        with pytest.raises(ValueError, match="limit must be at least 1, not 0"):
            await admin.list_queues(limit=0)


async def test_labels_of_a_topic_outlive_the_broker(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders", labels={"team": "billing", "owner": "ann"})
        await client.admin.alter_topic("orders", set_labels={"cost": "7"}, remove_labels=["owner"])
    async with client_of(world) as client:
        (topic,) = await client.admin.describe_topics(["orders"])

        assert topic.labels == {"team": "billing", "cost": "7"}
        assert topic.config_overrides == []


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


async def test_add_partitions_is_idempotent(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders", 2)

        planned = await client.admin.add_partitions("orders", 5, validate_only=True)
        (before,) = await client.admin.describe_topics(["orders"])
        grown = await client.admin.add_partitions("orders", 5)
        again = await client.admin.add_partitions("orders", 5)
        (after,) = await client.admin.describe_topics(["orders"])

    assert planned == grown
    assert (grown.partition_count, grown.added, again.added) == (5, 3, 0)
    assert (len(before.partitions), len(after.partitions)) == (2, 5)
    assert {part.status for part in after.partitions} == {"online"}


async def test_a_topic_never_loses_partitions(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders", 2)

        for validate_only in (True, False):
            with pytest.raises(InvalidTopicError, match="cannot have fewer"):
                await client.admin.add_partitions("orders", 1, validate_only=validate_only)
        with pytest.raises(UnknownTopicError):
            await client.admin.add_partitions("nope", 3)


async def test_a_running_producer_finds_new_partitions_after_metadata_max_age(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    keys = [b"%d" % number for number in range(50)]
    async with client_of(world, metadata_max_age=60) as client, client.producer() as producer:
        await client.admin.create_topic("orders", 1)
        await producer.send_many("orders", keys, keys=keys)
        async with connect("{}:{}".format(*ADDRESS), env=world.env) as other:
            await other.admin.add_partitions("orders", 2)
        at_once = [await producer.send("orders", key, key=key) for key in keys]
        await trio.sleep(61)
        await producer.send("orders", b"asks", key=b"again")
        await trio.sleep(1)
        later = [await producer.send("orders", key, key=key) for key in keys]

    assert {receipt.partition for receipt in at_once} == {0}
    assert {receipt.partition for receipt in later} == {0, 1}


async def test_topic_usage_is_reported_per_partition(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("empty")
        await client.admin.create_topic("orders", 2)
        async with client.producer() as producer:
            await producer.send("orders", b"v", partition=1, timestamp_ms=12_345)

        empty, orders = await client.admin.topic_usage()
        with pytest.raises(UnknownTopicError):
            await client.admin.topic_usage(["nope"])

    assert [each.oldest_ms for each in empty.partitions] == [None]
    assert (orders.name, orders.partition_count, orders.replication_factor) == ("orders", 2, 1)
    assert [each.oldest_ms for each in orders.partitions] == [None, 12_345]
    assert [each.segment_count for each in orders.partitions] == [1, 1]
    assert [each.dirty_ratio for each in orders.partitions] == [None, None]


async def test_a_queue_delivers_messages_of_new_partitions(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")
        await client.admin.create_queue("billing", topic="orders")
        queue = client.queue("billing")
        assert await queue.receive(wait=0) == []

        grown = await client.admin.add_partitions("orders", 3)
        async with client.producer() as producer:
            await producer.send("orders", b"new", partition=2)
        with trio.fail_after(120):
            while not (received := await queue.receive(wait=20)):
                pass
        (described,) = await client.admin.describe_queues(["billing"], with_counts=True)

    assert grown.queues == ["billing"]
    assert [(message.partition, message.value) for message in received] == [(2, b"new")]
    assert [part.start_offset for part in described.partitions] == [0, 0, 0]
    assert described.counts is not None
    assert described.counts.in_flight == 1


async def test_a_topic_with_a_fifo_queue_keeps_its_partitions(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_queue("billing", topic="orders", partitions=2, fifo=True)

        for validate_only in (True, False):
            with pytest.raises(InvalidTopicError, match="FIFO queues: billing"):
                await client.admin.add_partitions("orders", 3, validate_only=validate_only)
        (topic,) = await client.admin.describe_topics(["orders"])

    assert len(topic.partitions) == 2


async def test_members_of_a_group_are_assigned_new_partitions(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")
        async with client.consumer(
            "orders", group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            async with client.producer() as producer:
                await producer.send("orders", b"old")
                first = await anext(aiter(consumer))
                await client.admin.add_partitions("orders", 2)
            async with client.producer() as producer:
                await producer.send("orders", b"new", partition=1)
            second = await anext(aiter(consumer))

    assert [(each.partition, each.value) for each in (first, second)] == [(0, b"old"), (1, b"new")]


async def test_a_full_partition_rejects_records_until_it_has_room(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client, client.producer() as producer:
        limits = {"segment_bytes": "4KiB", "max_partition_bytes": "8KiB"}
        await client.admin.create_topic("orders", config=limits)
        began_at = trio.current_time()

        await producer.send_many("orders", [bytes(3000)] * 2)
        with pytest.raises(PartitionFullError, match="max_partition_bytes") as caught:
            await producer.send("orders", bytes(3000))
        took_s = trio.current_time() - began_at
        (full,) = await client.admin.describe_topics(["orders"])
        await client.admin.alter_topic("orders", set={"max_partition_bytes": "16KiB"})
        receipt = await producer.send("orders", b"more")

    assert not getattr(caught.value, "__notes__", [])
    assert took_s < 1
    assert 4096 < full.partitions[0].size_bytes <= 8192
    assert receipt.offset == full.partitions[0].high_watermark


async def test_a_full_partition_has_room_when_records_were_deleted(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client, client.producer() as producer:
        limits = {"segment_bytes": "4KiB", "max_partition_bytes": "8KiB"}
        await client.admin.create_topic("orders", config=limits)
        for _ in range(2):
            await producer.send("orders", bytes(3000))
        with pytest.raises(PartitionFullError, match="delete the oldest record"):
            await producer.send("orders", bytes(3000))

        await client.admin.delete_records("orders", 0, None)

        with trio.fail_after(60):
            while True:
                (topic,) = await client.admin.describe_topics()
                if topic.partitions[0].size_bytes < 4096:
                    break
                await trio.sleep(1)
        receipt = await producer.send("orders", bytes(3000))

    assert receipt.offset == 2


async def test_members_of_a_group_find_new_partitions_that_another_client_has_added(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")
        async with client.consumer(
            "orders", group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            async with connect("{}:{}".format(*ADDRESS), env=world.env) as other:
                async with other.producer() as producer:
                    await producer.send("orders", b"old")
                    first = await anext(aiter(consumer))
                    await other.admin.add_partitions("orders", 2)
                async with other.producer() as producer:
                    await producer.send("orders", b"new", partition=1)
            with trio.fail_after(60):
                second = await anext(aiter(consumer))

    assert [(each.partition, each.value) for each in (first, second)] == [(0, b"old"), (1, b"new")]


Call = Callable[[Admin], Awaitable[object]]

REFUSED: list[tuple[Call, type[Exception]]] = [
    (lambda admin: admin.create_topic("taken"), TopicExistsError),
    (lambda admin: admin.create_topic("a/b"), InvalidTopicError),
    (lambda admin: admin.create_topic("more", 0), InvalidTopicError),
    (lambda admin: admin.create_topic("more", colour="red"), InvalidConfigError),
    (lambda admin: admin.alter_topic("nope", set={}), UnknownTopicError),
    (lambda admin: admin.alter_topic("taken", set={"retention_ms": "soon"}), InvalidConfigError),
    (lambda admin: admin.delete_topic("nope"), UnknownTopicError),
    (lambda admin: admin.delete_records("taken", 1, 0), UnknownPartitionError),
]


@pytest.mark.parametrize(("call", "error"), REFUSED)
async def test_a_refused_request_raises_the_error_of_the_broker(
    autojump_clock: MockClock, call: Call, error: type[Exception]
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("taken")

        with pytest.raises(error):
            await call(client.admin)
