"""A broker leads and follows as the metadata says."""

from client.client import Client
from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    ThreeBrokers,
    live,
    make_topic,
    produce,
)
from tests.coordinator.raft_life import until


def test_one_leads_and_the_others_follow_in_its_leader_epoch() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await brokers.with_client(make_topic)
        leader_id = await brokers.leads()

        def all_follow() -> bool:
            replicas = [brokers.partition(node) for node in brokers.followers()]
            return all(
                replica is not None
                and replica.follower is not None
                and replica.follower.leader_id == leader_id
                for replica in replicas
            )

        await until(all_follow)
        partition = brokers.partition(leader_id)
        assert partition is not None
        assert partition.follower is None

    live(1, main)


def test_another_minimum_holds_at_once() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await until(lambda: brokers.in_sync() == set(NODES))
            await client.admin.alter_topic(TOPIC, set={"min_in_sync_replicas": 3})

        await brokers.with_client(work)

        def minimum() -> int:
            partition = brokers.partition(brokers.leader() or 0)
            assert partition is not None
            assert partition.leader is not None
            return partition.leader.replicas.min_in_sync_replicas

        await until(lambda: minimum() == 3)

    live(2, main)


def test_a_topic_has_a_replica_on_each_of_three_brokers_if_it_does_not_say() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))
        await brokers.with_client(lambda client: client.admin.create_topic(TOPIC, partitions=1))

        await until(lambda: brokers.in_sync() == set(NODES))

    live(3, main)


def test_a_deleted_topic_is_followed_no_more() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await until(lambda: brokers.in_sync() == set(NODES))
            await client.admin.delete_topic(TOPIC)

        await brokers.with_client(work)

        await until(lambda: all(brokers.partition(node) is None for node in NODES))

    live(4, main)


def test_replicas_move_to_other_brokers_with_all_that_was_acknowledged() -> None:
    """I61: a reassignment is complete when all new replicas are in sync."""

    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await client.admin.create_topic(TOPIC, partitions=1, replication_factor=1)
            acknowledged = await produce(client, 20)
            first = await brokers.leads()
            others = [node for node in NODES if node != first]

            await brokers.reassign([first, *others])
            await until(lambda: brokers.in_sync() == set(NODES))
            acknowledged |= await produce(client, 20, start=20)
            await brokers.check(acknowledged)

            await brokers.reassign(others)
            await until(lambda: brokers.in_sync() == set(others))
            assert await brokers.leads(other_than=first) in others
            acknowledged |= await produce(client, 20, start=40)
            for node in others:
                records = brokers.records(node)
                assert {offset: records[offset] for offset in acknowledged} == acknowledged

        await brokers.with_client(work)

    live(5, main)
