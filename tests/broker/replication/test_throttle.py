"""Tests of the catch-up throttle for replicas that are being added."""

import trio

from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers, live
from tests.coordinator.raft_clients import until
from tidelog.client.client import Client
from tidelog.coordinator.metadata.commands import AlterClusterConfig

RATE = 100_000
VALUE = b"v" * 10_000


async def limit(brokers: ThreeBrokers, rate: str) -> None:
    """Set the rate of the whole cluster."""
    cluster = brokers.brokers[1]._cluster  # pyright: ignore[reportPrivateUsage]
    assert cluster is not None
    command = AlterClusterConfig({"reassignment_max_bytes_per_second": rate}, [])
    await cluster.command_client.submit(command, timeout_s=5)
    await until(
        lambda: all(
            brokers.state(node).overrides.get("reassignment_max_bytes_per_second") == rate
            for node in NODES
        )
    )


async def make_narrow_topic(client: Client) -> None:
    """Create the topic with a replica on two of the brokers, and a megabyte in it."""
    await client.admin.create_topic(TOPIC, 1, replication_factor=2)
    async with client.producer() as producer:
        for _ in range(100):
            await producer.send(TOPIC, VALUE)


def replicas(brokers: ThreeBrokers) -> tuple[list[int], int]:
    """Return the nodes with a replica, and the one without."""
    topic_id = brokers.state(1).catalog.topic(TOPIC).topic_id
    known = brokers.state(1).partition(topic_id, 0)
    assert known is not None
    (other,) = set(NODES) - set(known.replicas)
    return list(known.replicas), other


def is_moving(brokers: ThreeBrokers) -> bool:
    topic_id = brokers.state(1).catalog.topic(TOPIC).topic_id
    known = brokers.state(1).partition(topic_id, 0)
    assert known is not None
    return known.is_reassigning


def test_a_new_replica_is_copied_at_the_throttled_rate() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))
        await brokers.with_client(make_narrow_topic)
        there, other = replicas(brokers)
        await limit(brokers, str(RATE))

        began_at = trio.current_time()
        await brokers.reassign([*there, other])
        await until(lambda: not is_moving(brokers), 60)

        took_s = trio.current_time() - began_at
        assert 8 <= took_s <= 13, f"a megabyte at {RATE} bytes a second took {took_s} s"

    live(1, main)


def test_a_raised_throttle_rate_holds_at_once() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))
        await brokers.with_client(make_narrow_topic)
        there, other = replicas(brokers)
        await limit(brokers, "1kB")
        await brokers.reassign([*there, other])
        await trio.sleep(30)
        assert is_moving(brokers)

        await limit(brokers, "unlimited")

        await until(lambda: not is_moving(brokers), 5)

    live(2, main)


def test_in_sync_replicas_are_not_throttled_while_another_one_is_added() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))

        async def work(client: Client) -> float:
            await make_narrow_topic(client)
            there, other = replicas(brokers)
            await limit(brokers, "1kB")
            await brokers.reassign([*there, other])
            began_at = trio.current_time()
            async with client.producer() as producer:
                for _ in range(300):
                    await producer.send(TOPIC, VALUE)
            assert sorted(brokers.in_sync()) == sorted(there)
            return trio.current_time() - began_at

        took_s = await brokers.with_client(work)

        assert is_moving(brokers)
        assert took_s < 10, "three megabytes were acknowledged by all in sync"

    live(3, main)


def test_a_returning_replica_is_not_throttled() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))
        await limit(brokers, "1kB")
        await brokers.with_client(
            lambda client: client.admin.create_topic(TOPIC, 1, replication_factor=3)
        )
        await until(lambda: brokers.in_sync() == set(NODES))
        follower = brokers.followers()[0]
        brokers.kill(follower)
        await until(lambda: follower not in brokers.in_sync(), 30)

        async def write(client: Client) -> None:
            async with client.producer() as producer:
                for _ in range(100):
                    await producer.send(TOPIC, VALUE)

        await brokers.with_client(write)
        brokers.start(follower)

        await until(lambda: brokers.in_sync() == set(NODES), 30)

    live(4, main)
