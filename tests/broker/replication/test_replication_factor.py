"""Tests of another replication factor, on real brokers: a cluster grows from one to three."""

import pytest

from tests.broker.queues.workers import JOURNAL
from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers, live, produce
from tests.coordinator.raft_clients import until
from tests.simulation.machine.world import Simulation, World
from tidelog.client.client import Client

PARTITIONS = 2
MESSAGES = 20


def are_in_sync(brokers: ThreeBrokers, asked: int, *node_ids: int) -> bool:
    """Return whether topic and journal have in-sync replicas on these brokers and no others."""
    state = brokers.state(asked)
    partitions = [
        each
        for topic in state.catalog.topics
        if topic.name in (TOPIC, JOURNAL)
        for each in state.partitions(topic.topic_id)
    ]
    return len(partitions) == 2 * PARTITIONS and all(
        not each.is_reassigning
        and sorted(each.replicas) == sorted(each.in_sync_replicas) == sorted(node_ids)
        for each in partitions
    )


async def voters(client: Client) -> int:
    nodes = (await client.admin.describe_cluster()).nodes
    return sum(node.role == "voter" for node in nodes)


async def receive_all(client: Client, count: int) -> list[int]:
    """Receive and delete so many messages, and return the numbers that they contain."""
    queue = client.queue(TOPIC)
    numbers: list[int] = []
    while len(numbers) < count:
        for message in await queue.receive(max_messages=count - len(numbers), wait=5):
            assert message.value is not None
            numbers.append(int(message.value.removeprefix(b"order ")))
            await message.delete()
    return numbers


@pytest.mark.parametrize("seed", range(2))
def test_topics_of_one_broker_get_three_in_sync_copies_when_two_more_join(seed: int) -> None:
    async def run(world: World) -> None:
        brokers = ThreeBrokers(world)
        brokers.peers = {1: (), 2: (1, 2), 3: (1, 3)}
        brokers.start(1)
        await brokers.serve(1)

        async def work(client: Client) -> None:
            await client.admin.create_topic(TOPIC, PARTITIONS)
            await client.admin.create_queue(TOPIC)
            for number in range(PARTITIONS):
                await produce(client, MESSAGES // 2, start=100 * number, partition=number)
            done = await receive_all(client, 5)
            described = await client.admin.describe_cluster()
            assert (described.default_replication_factor, described.below_default_count) == (1, 0)
            brokers.start(2, 3)
            await brokers.serve(3)
            await until(lambda: brokers.are_live(3), 60)
            described = await client.admin.describe_cluster()
            assert (described.default_replication_factor, described.below_default_count) == (3, 1)

            moved = await client.admin.alter_replication_factor(None, 3)

            assert [(each.topic, each.partition) for each in moved] == [(TOPIC, 0), (TOPIC, 1)]
            assert all(sorted(each.replicas) == [1, 2, 3] for each in moved)
            await until(lambda: all(are_in_sync(brokers, node, *NODES) for node in NODES), 60)
            assert (await client.admin.describe_cluster()).below_default_count == 0
            assert await client.admin.alter_replication_factor(None, 3) == []
            while await voters(client) < 3:
                await client.admin.describe_cluster()
            brokers.kill(1)
            left = await receive_all(client, MESSAGES - len(done))
            assert not set(left) & set(done), "the journal of the killed broker was copied"
            assert len({*left, *done}) == MESSAGES

        await brokers.with_client(work)

    Simulation(seed).run(run)


def test_a_topic_gets_fewer_copies_while_a_client_uses_it() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))

        async def work(client: Client) -> None:
            await client.admin.create_topic(TOPIC, PARTITIONS)
            await client.admin.create_queue(TOPIC)
            await produce(client, MESSAGES)
            await until(lambda: are_in_sync(brokers, 1, *NODES), 60)
            leaders = {number: brokers.leader(number=number) for number in range(PARTITIONS)}

            moved = await client.admin.alter_replication_factor([TOPIC], 1)

            assert {each.partition: each.replicas for each in moved} == {
                number: [leader] for number, leader in leaders.items()
            }
            await until(
                lambda: (
                    sum(brokers.partition(node, JOURNAL) is not None for node in NODES) == 1
                    and sum(brokers.partition(node) is not None for node in NODES) == 1
                ),
                60,
            )
            assert sorted(await receive_all(client, MESSAGES)) == list(range(MESSAGES))

        await brokers.with_client(work)

    live(3, main)
