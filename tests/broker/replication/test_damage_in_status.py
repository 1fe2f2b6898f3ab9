"""Tests of damage in the description of the cluster: every node knows the damage of all."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from tests.broker.replication.damage import SEGMENT_BYTES, flip, produce, read_all, segments
from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers, live
from tests.coordinator.raft_clients import until
from tidelog.broker.handlers.cluster import ClusterHandler
from tidelog.client.client import Client
from tidelog.wire.messages.cluster_admin import (
    DamagedReplica,
    DescribeClusterReply,
    DescribeClusterRequest,
)


def described(brokers: ThreeBrokers, node_id: int) -> DescribeClusterReply:
    cluster = brokers.brokers[node_id]._cluster
    assert cluster is not None
    return ClusterHandler(cluster).describe(
        DescribeClusterRequest(with_partitions=True), memoryview(b"")
    )


def damaged(brokers: ThreeBrokers, node_id: int) -> list[tuple[str, int, int]]:
    """Return topic, partition and node of the damaged replicas that one broker describes."""
    reply = described(brokers, node_id)
    return [(each.topic, each.partition, each.node_id) for each in reply.damaged]


def test_the_damage_of_an_only_replica_is_in_the_status_of_each_node() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            config = {"segment_bytes": str(SEGMENT_BYTES)}
            await client.admin.create_topic(TOPIC, 1, replication_factor=1, config=config)
            await produce(client, 120)
            leader = await brokers.leads()
            assert [damaged(brokers, node) for node in NODES] == [[], [], []]

            flip(brokers, leader, segments(brokers, leader)[0])
            assert read_all(brokers, leader) == 1
            expected = [(TOPIC, 0, leader)]
            await until(lambda: all(damaged(brokers, node) == expected for node in NODES), 3)

            for node in NODES:
                reply = described(brokers, node)
                assert reply.damaged_count == 1
                counts = {each.node_id: each.damaged_count for each in reply.nodes}
                assert counts == {each: int(each == leader) for each in NODES}
                (partition,) = reply.partitions
                assert (partition.topic, partition.damaged_replicas) == (TOPIC, [leader])
            assert described(brokers, leader).damaged == [DamagedReplica(TOPIC, 0, leader)]

        await brokers.with_client(work)

    live(1, main)


def test_repaired_damage_leaves_the_status() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            config = {"segment_bytes": str(SEGMENT_BYTES)}
            await client.admin.create_topic(TOPIC, 1, replication_factor=2, config=config)
            leader = await brokers.leads()
            await until(lambda: len(brokers.in_sync()) == 2)
            (other,) = brokers.in_sync() - {leader}
            await produce(client, 60)
            await until(lambda: brokers.end_of(other) == brokers.end_of(leader))
            brokers.kill(other)
            await until(lambda: brokers.in_sync() == {leader}, 30)
            flip(brokers, leader, segments(brokers, leader)[0])
            assert read_all(brokers, leader) == 1
            await until(lambda: damaged(brokers, leader) == [(TOPIC, 0, leader)], 3)

            brokers.start(other)
            await until(lambda: len(brokers.in_sync()) == 2, 30)

            await until(lambda: all(damaged(brokers, node) == [] for node in NODES), 10)

        await brokers.with_client(work)

    live(4, main)


def test_a_new_controller_learns_of_the_damage_again() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            config = {"segment_bytes": str(SEGMENT_BYTES)}
            await client.admin.create_topic(TOPIC, 3, replication_factor=1, config=config)
            await produce(client, 60)
            leader = await brokers.leads()
            flip(brokers, leader, segments(brokers, leader)[0])
            assert read_all(brokers, leader) == 1
            await until(lambda: damaged(brokers, leader) == [(TOPIC, 0, leader)], 3)
            old = brokers.controller()
            if old == leader:
                cluster = brokers.brokers[old]._cluster
                assert cluster is not None
                await cluster.transfer_leadership()
            else:
                brokers.kill(old)
            await until(lambda: brokers.brokers.keys() >= {leader}, 3)
            await until(lambda: described(brokers, leader).controller_id not in {None, old}, 10)

            rest = list(brokers.brokers)
            await until(
                lambda: all(damaged(brokers, node) == [(TOPIC, 0, leader)] for node in rest), 10
            )

        await brokers.with_client(work)

    live(5, main)
