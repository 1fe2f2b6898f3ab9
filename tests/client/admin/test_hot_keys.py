"""Hot keys and message groups through the client, counted by a real broker."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.clients import client_of
from tidelog.client.admin.hot_keys import QueueHotGroup
from tidelog.wire.errors import UnknownQueueError, UnknownTopicError


async def test_keys_have_their_share_of_the_whole_topic(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_topic("orders", 2)
        async with client.producer() as producer:
            for _ in range(30):
                await producer.send("orders", b"v", key=b"hot", partition=0)
                for number in range(3):
                    await producer.send("orders", b"v", key=b"%d" % number, partition=1)
                await trio.sleep(1)

        found = await client.admin.hot_keys("orders")

        assert (found.topic, found.partition_count) == ("orders", 2)
        assert [each.partition for each in found.partitions] == [0, 1]
        assert [each.key for each in found.partitions[0].keys] == [b"hot"]
        assert sum(each.share for each in found.keys) == pytest.approx(1)
        assert {each.key: (each.partition, round(each.share, 2)) for each in found.keys} == {
            b"hot": (0, 0.25),
            b"0": (1, 0.25),
            b"1": (1, 0.25),
            b"2": (1, 0.25),
        }
        assert all(each.error_bound < 0.01 for each in found.keys)
        assert len((await client.admin.hot_keys("orders", 1)).keys) == 1


async def test_a_topic_without_traffic_has_no_keys(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_topic("orders")

        assert (await client.admin.hot_keys("orders")).keys == []


async def test_message_groups_of_all_partitions_are_compared(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_queue("orders", partitions=4, fifo=True)
        queue = client.queue("orders")
        for number in range(1, 9):
            for _ in range(number):
                await queue.send(b"v", group=b"g%d" % number)

        found = await client.admin.hot_message_groups("orders", 3)

        assert [(each.key, each.message_count) for each in found.groups] == [
            (b"g8", 8),
            (b"g7", 7),
            (b"g6", 6),
        ]
        assert (found.partition_count, found.answered_count) == (4, 4)
        assert isinstance(found.groups[0], QueueHotGroup)


async def test_missing_topics_and_queues_are_named(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        with pytest.raises(UnknownTopicError, match="'nope'"):
            await client.admin.hot_keys("nope")
        with pytest.raises(UnknownQueueError, match="'nope'"):
            await client.admin.hot_message_groups("nope")
        with pytest.raises(ValueError, match="limit must be from 1 to 64, not 65"):
            await client.admin.hot_keys("nope", 65)
