"""Tests of wrong wall clocks: deletion by time, times of appends, and status."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic, fetch_all
from tests.broker.broker_requests import produce as produce_to
from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers, host_of, live
from tests.broker.world import World
from tests.coordinator.raft_clients import until
from tidelog.broker.handlers.cluster import ClusterHandler
from tidelog.broker.partitions.partition import Partition
from tidelog.client.client import Client
from tidelog.coordinator.metadata.broker_sessions import SESSION_MS
from tidelog.wire.messages.cluster_admin import DescribeClusterRequest

DAY_S = 86_400.0
DAY_MS = 86_400_000
COUNT = 20


async def make_records(brokers: ThreeBrokers, count: int = COUNT) -> None:
    """Create a topic with a retention of a week, and two records for each segment."""

    async def work(client: Client) -> None:
        await client.admin.create_topic(
            TOPIC, 1, replication_factor=3, config={"retention_ms": "7d", "segment_bytes": "4KiB"}
        )
        await append(client, count)

    await brokers.with_client(work)
    await brokers.all_in_sync()


async def append(client: Client, count: int) -> None:
    async with client.producer() as producer:
        for number in range(count):
            await producer.send(TOPIC, b"%d" % number * 1900, partition=0)


def observed(brokers: ThreeBrokers) -> list[tuple[str, str]]:
    """Return the nodes and names of the events from now on."""
    events: list[tuple[str, str]] = []
    brokers.world.observe(lambda node, event, _: events.append((node, event)))
    return events


def replica(brokers: ThreeBrokers, node_id: int) -> Partition:
    partition = brokers.partition(node_id)
    assert partition is not None
    return partition


def starts(brokers: ThreeBrokers) -> set[int]:
    """Return the log start offsets of all replicas."""
    return {replica(brokers, node_id).log.log_start_offset for node_id in NODES}


def skews(brokers: ThreeBrokers, node_id: int) -> dict[int, int | None]:
    """Return the clock skews that one broker describes."""
    cluster = brokers.brokers[node_id]._cluster
    assert cluster is not None
    reply = ClusterHandler(cluster).describe(
        DescribeClusterRequest(with_partitions=False), memoryview(b"")
    )
    assert reply.clock_skew_max_ms == 30_000
    return {node.node_id: node.clock_skew_ms for node in reply.nodes}


@pytest.mark.parametrize("days", [8, -8])
@pytest.mark.parametrize("is_leader", [True, False])
def test_a_clock_of_other_days_deletes_no_fresh_record(days: int, *, is_leader: bool) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await make_records(brokers)
        leader = await brokers.leads()
        wrong = leader if is_leader else brokers.followers()[0]
        brokers.machines[wrong].wall_clock.jump(days * DAY_S)
        await trio.sleep(5)
        await brokers.with_client(lambda client: append(client, COUNT))
        await trio.sleep(15)
        brokers.machines[wrong].wall_clock.jump(-days * DAY_S)
        await trio.sleep(15)

        assert starts(brokers) == {0}

    live(1, main)


@pytest.mark.parametrize("days", [8, -8])
def test_a_broker_that_starts_with_a_clock_of_other_days_deletes_no_fresh_record(
    days: int,
) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await make_records(brokers)
        leader = await brokers.leads()
        brokers.kill(leader)
        await brokers.leads(other_than=leader)
        brokers.machines[leader].wall_clock.jump(days * DAY_S)
        brokers.start(leader)
        await brokers.all_in_sync()
        await brokers.with_client(lambda client: append(client, COUNT))
        await trio.sleep(15)
        times = [
            each.sealed_at_ms for each in replica(brokers, leader).log.summary(now_ms=0).sealed
        ]
        now_ms = brokers.machines[brokers.followers()[0]].wall_clock.now_ms()
        brokers.machines[leader].wall_clock.jump(-days * DAY_S)
        await trio.sleep(15)

        assert starts(brokers) == {0}
        assert all(now_ms - 120_000 < time_ms <= now_ms for time_ms in times)

    live(2, main)


def test_records_that_are_old_by_the_agreed_time_are_deleted() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await make_records(brokers)
        for node_id in NODES:
            brokers.kill(node_id)
            brokers.machines[node_id].wall_clock.jump(8 * DAY_S)
        brokers.start()
        await brokers.all_in_sync()

        await until(lambda: min(starts(brokers)) > 0)

    live(3, main)


def test_two_brokers_that_disagree_delete_nothing_by_time() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await make_records(brokers)
        leader = await brokers.leads()
        first, second = brokers.followers()
        events = observed(brokers)
        brokers.kill(first)
        await trio.sleep(15)
        brokers.machines[second].wall_clock.jump(8 * DAY_S)
        await trio.sleep(130)

        assert replica(brokers, leader).log.log_start_offset == 0
        assert replica(brokers, second).log.log_start_offset == 0
        assert skews(brokers, leader) == {1: None, 2: None, 3: None}
        assert (host_of(leader), "time_not_agreed") in events

    live(4, main)


def test_a_broker_that_starts_while_no_majority_agrees_takes_the_former_agreed_time() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))
        controller = brokers.controller()
        wrong, dead = [node for node in NODES if node != controller]
        brokers.kill(dead)
        await trio.sleep(SESSION_MS / 1000 + 1)
        brokers.kill(wrong)
        await trio.sleep(0.5)
        brokers.machines[wrong].wall_clock.jump(8 * DAY_S)
        brokers.start(wrong)
        await brokers.serve(2)

        times = [brokers.brokers[node]._clock.now_ms() for node in (controller, wrong)]
        assert abs(times[0] - times[1]) < 5000

    live(6, main)


def test_a_broker_with_a_wrong_clock_says_so_once_and_when_it_is_right_again() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))
        events = observed(brokers)
        brokers.machines[2].wall_clock.jump(45)
        await trio.sleep(30)
        assert {node: round((skew or 0) / 1000) for node, skew in skews(brokers, 1).items()} == {
            1: 0,
            2: 45,
            3: 0,
        }
        assert [node for node, event in events if event == "clock_skewed"] == ["node2"]
        brokers.machines[2].wall_clock.jump(-45)
        await trio.sleep(5)

        told = [(node, event) for node, event in events if event.startswith("clock_")]
        assert told == [("node2", "clock_skewed"), ("node2", "clock_in_bounds")]

    live(5, main)


async def test_a_jump_of_days_for_seconds_deletes_nothing_of_a_broker_alone(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, retention_ms="7d", segment_bytes="4KiB")
        for _ in range(COUNT):
            await produce_to(client, topic, batch_of(bytes(2000), at_ms=world.clock.now_ms()))
        world.clock.offset_ms += 8 * DAY_MS
        await world.pass_time(10)
        await produce_to(client, topic, batch_of(bytes(2000), at_ms=world.clock.now_ms()))
        await world.pass_time(10)
        world.clock.offset_ms -= 8 * DAY_MS
        await world.pass_time(10)

        assert len(await fetch_all(client, topic)) == COUNT + 1


@pytest.mark.parametrize("days", [30, -30])
async def test_a_record_of_other_days_neither_deletes_nor_keeps_those_beside_it(
    mock_clock: MockClock, *, days: int
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, retention_ms="7d", segment_bytes="4KiB")
        for _ in range(COUNT):
            now_ms = world.clock.now_ms()
            await produce_to(client, topic, batch_of(bytes(1900), at_ms=now_ms))
            await produce_to(client, topic, batch_of(bytes(1900), at_ms=now_ms + days * DAY_MS))
        for _ in range(12):
            await world.pass_time(DAY_S / 2)
        assert len(await fetch_all(client, topic)) == 2 * COUNT

        for _ in range(4):
            await world.pass_time(DAY_S / 2)
        assert len(await fetch_all(client, topic)) <= 2


async def test_a_segment_that_began_with_a_clock_ahead_is_rolled_in_time(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, retention_ms="unlimited", segment_ms="1h")
        world.clock.offset_ms += 30 * DAY_MS
        await produce_to(client, topic, batch_of(b"a"))
        world.clock.offset_ms -= 30 * DAY_MS
        await world.pass_time(10)
        await world.pass_time(3600)

        assert len(world.segments()) == 2
