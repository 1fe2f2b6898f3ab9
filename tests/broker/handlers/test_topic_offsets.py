"""Tests of the offsets of a topic: describing it, and deleting its oldest records."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import (
    batch_of,
    create_topic,
    delete_records,
    delete_topic,
    describe,
    fetch_all,
    produce,
    submit,
    submit_produce,
)
from tests.broker.world import World, settle
from tidelog.wire.errors import (
    DiskFullError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.topics import (
    DescribeTopicsRequest,
)
from tidelog.wire.protocol import api


async def test_a_topic_description_has_the_offsets_of_its_partitions(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a", b"b", b"c"))
        await delete_records(client, topic, 1)
        world.work.hold_syncs()
        pending = submit_produce(client, topic, batch_of(b"d"))
        await settle()

        found = await describe(client)

        assert (found.log_start_offset, found.high_watermark, found.log_end_offset) == (1, 3, 4)
        assert found.size_bytes > 0
        assert (found.leader_id, found.status) == (1, "online")
        world.work.let_all_sync()
        await pending.reply()


async def test_describing_an_unknown_topic_is_refused(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client)
        with pytest.raises(UnknownTopicError, match="there is no topic 'other'"):
            await submit(
                client, api.DESCRIBE_TOPICS, DescribeTopicsRequest(["orders", "other"])
            ).reply()


async def test_deleted_records_stay_deleted_after_a_power_cut(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a", b"b", b"c"))

        assert await delete_records(client, topic, 2) == 2

    for seed in range(10):
        after = world.after_power_cut(seed)
        async with after.broker(), after.client() as client:
            assert await fetch_all(client, topic) == [(2, b"c")]


async def test_all_records_up_to_the_high_watermark_can_be_deleted(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a", b"b"))

        assert await delete_records(client, topic, None) == 2
        assert await delete_records(client, topic, 1) == 2  # The high watermark never goes back.
        assert await delete_records(client, topic, -1) == 2
        with pytest.raises(OffsetOutOfRangeError, match="only offsets below 2 are committed"):
            await delete_records(client, topic, 3)
        assert (await produce(client, topic, batch_of(b"c"))).base_offset == 2


async def test_delete_records_is_not_durable_without_room_for_a_checkpoint(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a", b"b"))
        world.disk.capacity_bytes = 0

        with pytest.raises(DiskFullError, match="a restart may bring them back"):
            await delete_records(client, topic, 1)

        assert (await describe(client)).log_start_offset == 1
        world.disk.capacity_bytes = None
        assert await delete_records(client, topic, 1) == 1


async def test_delete_records_of_a_topic_deleted_meanwhile_is_refused(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client, trio.open_nursery() as nursery:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a", b"b"))
        world.work.hold_syncs()
        failures: list[Exception] = []

        async def try_to_delete_records() -> None:
            try:
                await delete_records(client, topic, 1)
            except UnknownTopicIdError as error:
                failures.append(error)

        nursery.start_soon(try_to_delete_records)
        await settle()
        nursery.start_soon(delete_topic, client)
        await settle()
        world.work.let_all_sync()
        await settle()

        assert len(failures) == 1
