"""Tests of queue journals on three brokers: they are placed and fail over with their topics."""

import pytest

from tests.broker.replication.three_brokers import NODES, ThreeBrokers, live, make_topic
from tests.coordinator.raft_clients import until
from tidelog.client.client import Client
from tidelog.wire.errors import UnknownQueueError

JOURNAL = "queue@q"


async def leaders(client: Client) -> list[int | None]:
    (queue,) = await client.admin.describe_queues(["q"])
    return [partition.leader_id for partition in queue.partitions]


def test_a_journal_has_its_replicas_on_the_brokers_of_its_topic() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client, partitions=3)
            await client.admin.create_queue("q", topic="orders")
            (topic,) = await client.admin.describe_topics(["orders"])
            (queue,) = await client.admin.describe_queues(["q"])
            assert [each.replicas for each in queue.partitions] == [
                each.replicas for each in topic.partitions
            ]
            assert await leaders(client) == [each.leader_id for each in topic.partitions]

        await brokers.with_client(work)
        await until(lambda: all(brokers.partition(node, JOURNAL, 2) for node in NODES))

    live(1, main)


def test_another_broker_serves_a_queue_after_a_failover() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await client.admin.create_queue("q", topic="orders")
            (before,) = await leaders(client)
            assert before is not None
            await until(lambda: all(brokers.partition(node, JOURNAL) for node in NODES))

            brokers.kill(before)
            await until(lambda: brokers.leader(JOURNAL) not in {None, before}, 60)

            assert await leaders(client) == [brokers.leader(JOURNAL)]
            assert brokers.leader(JOURNAL) == brokers.leader()

        await brokers.with_client(work)

    live(2, main)


def test_a_deleted_queue_is_gone_everywhere_and_its_topic_is_not() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await client.admin.create_queue("q", topic="orders")
            await until(lambda: all(brokers.partition(node, JOURNAL) for node in NODES))

            await client.admin.delete_queue("q")

            with pytest.raises(UnknownQueueError):
                await client.admin.describe_queues(["q"])
            assert await client.admin.list_topics() == ["orders"]
            await until(lambda: all(len(brokers.state(node).catalog.topics) == 1 for node in NODES))
            assert not any(brokers.partition(node, JOURNAL) for node in NODES)

        await brokers.with_client(work)

    live(3, main)
