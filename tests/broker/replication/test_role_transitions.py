"""Tests of role transitions: a broker leads and follows as in the metadata."""

# Begins repairs of a log through a private method, as a leader's reply does.
# pyright: reportPrivateUsage=false

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from tests.broker.applied_metadata import AppliedMetadata, keeping
from tests.broker.logs import append
from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    ThreeBrokers,
    live,
    make_topic,
    produce,
)
from tests.broker.world import World, settle
from tests.coordinator.metadata.clusters import Cluster
from tests.coordinator.raft_clients import until
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.fetcher import ReplicaFetcher
from tidelog.client.client import Client
from tidelog.coordinator.metadata.catalog import DeleteTopic
from tidelog.coordinator.metadata.commands import Reassignment, ReassignReplicas
from tidelog.isr.follower import Restart, Truncate


def test_one_replica_leads_and_the_others_follow_in_its_leader_epoch() -> None:
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


def test_a_changed_min_insync_replicas_holds_at_once() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await until(lambda: brokers.in_sync() == set(NODES))
            await client.admin.alter_topic(TOPIC, set={"min_insync_replicas": 3})

        await brokers.with_client(work)

        def minimum() -> int:
            partition = brokers.partition(brokers.leader() or 0)
            assert partition is not None
            assert partition.leader is not None
            return partition.leader.replicas.min_insync_replicas

        await until(lambda: minimum() == 3)

    live(2, main)


def test_a_topic_has_three_replicas_on_three_brokers_by_default() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))
        await brokers.with_client(lambda client: client.admin.create_topic(TOPIC, partitions=1))

        await until(lambda: brokers.in_sync() == set(NODES))

    live(3, main)


def test_a_deleted_topic_is_no_longer_followed() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await until(lambda: brokers.in_sync() == set(NODES))
            await client.admin.delete_topic(TOPIC)

        await brokers.with_client(work)
        await until(lambda: not any(brokers.knows(node, TOPIC) for node in NODES))
        refused: list[str] = []
        # The leader may get one more fetch from a follower that does not know the deletion yet.
        await trio.sleep(0.5)
        brokers.world.observe(lambda node, event, _: refused.append(f"{node} {event}"))
        await trio.sleep(2)
        assert [event for event in refused if "replica_fetch_refused" in event] == []

    live(4, main)


def fetchers(partition: Partition) -> list[ReplicaFetcher]:
    """Return all fetchers that follow with a replica."""
    return [watcher for watcher in partition.watchers if isinstance(watcher, ReplicaFetcher)]


def delete(kept: AppliedMetadata) -> None:
    kept.hear(lambda: kept.cluster.do(DeleteTopic("orders")))


def move(kept: AppliedMetadata, topic_id: bytes, *replicas: int) -> None:
    command = ReassignReplicas([Reassignment(topic_id, 0, list(replicas))])
    kept.hear(lambda: kept.cluster.do(command))


async def test_a_removed_replica_is_no_longer_fetched(mock_clock: MockClock) -> None:
    ways: list[Callable[[AppliedMetadata, bytes], None]] = [
        lambda kept, _: delete(kept),
        lambda kept, topic_id: move(kept, topic_id, 2),
    ]
    for go in ways:
        world, cluster = World(mock_clock), Cluster(1, 2)
        topic_id = cluster.create("orders", [2, 1])
        async with keeping(world, cluster) as kept:
            await kept.start()
            partition = kept.replica(topic_id)
            await world.pass_time(1)
            assert world.told("replica_fetch_ended") != []

            go(kept, topic_id)
            await world.pass_time(1)
            tried = len(world.told("replica_fetch_ended"))
            await world.pass_time(10)

            assert len(world.told("replica_fetch_ended")) == tried
            assert fetchers(partition) == []
            assert partition.follower is None


async def test_a_repair_does_not_outlive_its_partition(mock_clock: MockClock) -> None:
    for step in (Truncate(1), Restart(7)):
        world, cluster = World(mock_clock), Cluster(1, 2)
        topic_id = cluster.create("orders", [2, 1])
        async with keeping(world, cluster) as kept:
            await kept.start()
            partition = kept.replica(topic_id)
            append(partition.log, b"a")
            append(partition.log, b"b")
            world.work.hold_syncs()
            kept.group_commit.appended(partition)
            await settle()

            # The repair waits for the flush, and then finds the replica closed.
            (fetcher,) = fetchers(partition)
            fetcher._begin_repair(partition, step)
            delete(kept)
            await settle()
            assert len(world.disk.list_directory("topics")) == 1, "a task may use its files"
            world.work.let_all_sync()
            await kept.applier.settle(topic_id)
            await world.pass_time(10)

            assert world.disk.list_directory("topics") == []
            assert world.told("replica_truncated") == world.told("replica_not_truncated") == []
            assert world.told("log_status_changed") == []
            assert partition.log.log_end_offset == 2


async def test_a_late_repair_does_not_change_a_replica_that_has_returned(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [2, 3, 1])
    cluster.in_sync(2, 3)
    async with keeping(world, cluster) as kept:
        await kept.start()
        first = kept.replica(topic_id)
        append(first.log, b"a")
        (fetcher,) = fetchers(first)
        world.disk.capacity_bytes = 1
        fetcher._begin_repair(first, Truncate(0))
        await settle()
        world.disk.capacity_bytes = None
        assert len(world.told("replica_not_truncated")) == 1, "the repair is retried"

        move(kept, topic_id, 2, 3)
        await settle()
        move(kept, topic_id, 2, 3, 1)
        await settle()
        second = kept.replica(topic_id)
        assert second is not first
        await world.pass_time(2)
        kept.hear(lambda: cluster.shut_down(2))

        assert second.follower is not None
        assert second.follower.leader_id == 3
        assert [each._leader_id for each in fetchers(second)] == [3]


async def test_a_repair_ends_when_its_log_is_closed(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2)
    topic_id = cluster.create("orders", [2, 1])
    async with keeping(world, cluster) as kept:
        await kept.start()
        partition = kept.replica(topic_id)
        append(partition.log, b"a")
        world.work.hold_work()
        (fetcher,) = fetchers(partition)
        fetcher._begin_repair(partition, Restart(7))
        await settle()
        delete(kept)
        await settle()
        world.work.let_all()
        await kept.applier.settle(topic_id)

        assert world.disk.list_directory("topics") == []
        assert world.told("log_status_changed") == []
        assert world.told("replica_not_truncated") == []


@pytest.mark.invariant("I61")
def test_reassigned_replicas_have_all_acknowledged_records() -> None:
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
