"""Counting the messages of many queues."""

# Looks into the client, which nobody else has to.
# pyright: reportPrivateUsage=false

from msgspec.structs import replace
from trio.testing import MockClock

from tests.broker.world import START_MS, World
from tests.client.worlds import client_of
from tidelog.client.admin.queue_counts import MessageCounts, count_messages, sum_of
from tidelog.wire.messages.queues import QueueCounts


def test_counts_of_partitions_are_added_and_the_oldest_message_is_the_oldest_of_all() -> None:
    counts = [
        QueueCounts(0, 1, 2, 3, 4, 100, 5000, oldest_age_ms=2000),
        QueueCounts(1, 10, 20, 30, 40, 100, 4000, oldest_age_ms=3000),
        QueueCounts(2, 0, 0, 0, 0, 7),
    ]

    assert sum_of(counts) == MessageCounts(11, 22, 33, 44, 4000, 3000)
    assert sum_of(counts[2:]) == MessageCounts(0, 0, 0, 0, None)


async def test_queues_are_described_with_their_messages(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        admin = client.admin
        for number in range(20):
            await admin.create_queue(f"q{number:02}", partitions=2)
        queue = client.queue("q07")
        await queue.send_batch([b"a", b"b", b"c"])
        await queue.receive(1, wait=5)

        (without,) = await admin.describe_queues(["q07"])
        queues = await admin.describe_queues(with_counts=True)

        assert without.counts is None
        counts = {each.name: each.counts for each in queues}
        assert len(counts) == 20
        found = counts.pop("q07")
        assert found is not None
        assert (found.visible, found.leased, found.delayed, found.dead) == (2, 1, 0, 0)
        assert found.oldest_timestamp_ms is not None
        assert found.oldest_timestamp_ms >= START_MS
        assert set(counts.values()) == {MessageCounts(0, 0, 0, 0, None)}


async def test_counts_of_a_queue_that_nobody_serves_are_not_known(
    autojump_clock: MockClock,
) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_queue("orders")
        (queue,) = await client.admin.describe_queues(["orders"])
        (partition,) = queue.partitions
        nowhere = replace(queue, partitions=[replace(partition, leader_id=None)])
        elsewhere = replace(queue, partitions=[replace(partition, leader_id=9)])
        gone = replace(queue, queue_id=bytes(16))

        found = await count_messages(client.admin._cluster, [nowhere, elsewhere, gone, queue])

        assert found == [None, None, None, MessageCounts(0, 0, 0, 0, None)]
