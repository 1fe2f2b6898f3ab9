"""Tests of the fetcher: a follower's reaction to the replies of its leader."""

# pyright: reportPrivateUsage=false

import pytest

from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    ThreeBrokers,
    live,
    make_topic,
    produce,
)
from tests.coordinator.raft_clients import until
from tidelog.broker.replication.fetcher import _bounds_in
from tidelog.client.client import Client
from tidelog.wire.errors import BrokerError, NotLeaderError, OffsetOutOfRangeError


def test_a_follower_learns_the_high_watermark_soon_after_the_commit() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await produce(client, 5)

        await brokers.with_client(work)

        def all_know() -> bool:
            replicas = [brokers.partition(node) for node in NODES]
            return all(replica and replica.high_watermark == 5 for replica in replicas)

        await until(all_know, 2)

    live(1, main)


@pytest.mark.invariant("I54")
def test_a_follower_behind_the_leaders_log_start_restarts_there() -> None:
    """I54: the records that it lacks no longer exist."""

    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await produce(client, 10)
            follower = brokers.followers()[0]
            brokers.kill(follower)
            await until(lambda: follower not in brokers.in_sync())
            await produce(client, 30)
            await client.admin.delete_records(TOPIC, 0, 25)
            brokers.start(follower)
            await until(lambda: brokers.in_sync() == set(NODES), 60)
            partition = brokers.partition(follower)
            assert partition is not None
            assert partition.log.log_start_offset == 25
            assert sorted(brokers.records(follower)) == list(range(25, 40))

        await brokers.with_client(work)

    live(2, main)


def test_records_deleted_by_the_leader_are_deleted_at_followers() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await produce(client, 10)
            await client.admin.delete_records(TOPIC, 0, 7)

        await brokers.with_client(work)

        def all_begin_at_7() -> bool:
            replicas = [brokers.partition(node) for node in NODES]
            return all(replica and replica.log.log_start_offset == 7 for replica in replicas)

        await until(all_begin_at_7, 2)

    live(3, main)


@pytest.mark.invariant("I25")
def test_a_follower_with_a_full_disk_leaves_the_isr_and_rejoins_when_there_is_room() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await brokers.with_client(make_topic)
        await until(lambda: brokers.in_sync() == set(NODES))
        disk = brokers.machines[brokers.followers()[0]].disk
        disk.capacity_bytes = 1

        await brokers.with_client(lambda client: produce(client, 3))
        assert len(brokers.in_sync()) == 2
        disk.capacity_bytes = None

        await until(lambda: brokers.in_sync() == set(NODES), 60)
        assert {brokers.end_of(node) for node in NODES} == {3}

    live(4, main, replica_lag_time_max_ms=1000)


@pytest.mark.parametrize(
    ("error", "bounds"),
    [
        (OffsetOutOfRangeError("no", log_start_offset=3, log_end_offset=9), (3, 9)),
        (OffsetOutOfRangeError("no", log_start_offset=0, log_end_offset=0), (0, 0)),
        (OffsetOutOfRangeError("no"), None),
        (OffsetOutOfRangeError("no", log_start_offset=3), None),
        (OffsetOutOfRangeError("no", log_end_offset=9), None),
        (NotLeaderError("no"), None),
    ],
)
def test_an_offset_out_of_range_without_both_bounds_does_not_truncate_the_log(
    error: BrokerError, bounds: tuple[int, int] | None
) -> None:
    assert _bounds_in(error) == bounds
