"""Queue metadata: fetched once, and again after an invalidation."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.fake_cluster import fronted_client, fronted_cluster
from tidelog.client.admin.queue_metadata import leader_of
from tidelog.client.queue.context import QueueContext
from tidelog.wire.errors import UnknownPartitionError, UnknownQueueError
from tidelog.wire.protocol import api


async def test_concurrent_lookups_of_a_queue_share_a_request(autojump_clock: MockClock) -> None:
    async with (
        fronted_cluster(autojump_clock, (1, 2)) as cluster,
        fronted_client(cluster) as client,
    ):
        await client.admin.create_queue("work", topic="orders")
        cluster.leaders[1] = (2, 0)
        shared = QueueContext(vars(client)["_cluster"])
        front = cluster.fronts[1]
        before = len(front.asked)
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(shared.queue_metadata.find, "work")
        assert front.asked[before:].count(api.DESCRIBE_QUEUES) == 1  # type: ignore[arg-type]

        found = await shared.queue_metadata.find("work")
        assert [leader_of(found, number) for number in (0, 1)] == [1, 2]
        with pytest.raises(UnknownPartitionError, match="has 2 partitions, there is no 2"):
            leader_of(found, 2)

        cluster.leaders[1] = (1, 1)
        assert await shared.queue_metadata.find("work") is found
        shared.queue_metadata.invalidate(found)
        newer = await shared.queue_metadata.find("work")
        assert leader_of(newer, 1) == 1
        shared.queue_metadata.invalidate(found)
        assert await shared.queue_metadata.find("work") is newer, "that is known better already"


async def test_lookup_of_an_unknown_queue_fails(
    autojump_clock: MockClock,
) -> None:
    async with fronted_cluster(autojump_clock) as cluster, fronted_client(cluster) as client:
        shared = QueueContext(vars(client)["_cluster"])
        for _ in range(2):
            with pytest.raises(UnknownQueueError, match="'work'"):
                await shared.queue_metadata.find("work")
        await client.admin.create_queue("work", topic="orders")
        assert (await shared.queue_metadata.find("work")).topic == "orders"


async def test_altered_queue_settings_are_refreshed_in_the_background(
    autojump_clock: MockClock,
) -> None:
    async with fronted_cluster(autojump_clock) as cluster, fronted_client(cluster) as client:
        await client.admin.create_queue("work", topic="orders")
        shared = QueueContext(vars(client)["_cluster"])
        assert (await shared.queue_metadata.find("work")).config[
            "receive_message_wait_time_ms"
        ] == "0"
        await client.admin.alter_queue("work", set={"receive_message_wait_time": 7})
        await trio.sleep(31)
        await shared.queue_metadata.find("work")
        await trio.sleep(1)
        assert (await shared.queue_metadata.find("work")).config[
            "receive_message_wait_time_ms"
        ] == "7000ms"
        asked = len(cluster.fronts[1].asked)
        await trio.sleep(1000)
        assert api.DESCRIBE_QUEUES not in cluster.fronts[1].asked[asked:], "no call needs it"


async def test_an_invalidated_queue_is_fetched_once_beside_a_background_refresh(
    autojump_clock: MockClock,
) -> None:
    async with fronted_cluster(autojump_clock) as cluster, fronted_client(cluster) as client:
        await client.admin.create_queue("work", topic="orders")
        shared = QueueContext(vars(client)["_cluster"])
        found = await shared.queue_metadata.find("work")
        await trio.sleep(31)
        before = len(cluster.fronts[1].asked)

        await shared.queue_metadata.find("work")
        shared.queue_metadata.invalidate(found)
        assert await shared.queue_metadata.find("work") is not found

        await trio.sleep(1)
        asked = cluster.fronts[1].asked[before:]
        assert asked.count(api.DESCRIBE_QUEUES) == 1  # type: ignore[arg-type]
