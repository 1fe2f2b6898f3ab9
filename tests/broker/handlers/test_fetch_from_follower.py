"""Tests of fetches from a follower, which returns the committed records that it knows."""

from collections.abc import Awaitable, Callable

import trio

from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    ThreeBrokers,
    connected,
    live,
    make_topic,
    produce,
)
from tests.coordinator.raft_clients import until
from tests.logstore.logs import records_in
from tests.simulation.machine.process import Process
from tests.simulation.three_brokers.runs import Writer
from tidelog.client.client import Client
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch, PartitionFetched
from tidelog.wire.protocol import api

Ask = Callable[[int, bool, int], Awaitable[tuple[PartitionFetched, dict[int, bytes]]]]
"""Fetches at an offset, from a follower or not, with a wait time in milliseconds."""


def follows(brokers: ThreeBrokers, node_id: int) -> bool:
    """Return whether a broker has begun to follow."""
    replica = brokers.partition(node_id)
    return replica is not None and replica.follower is not None


async def asking(
    brokers: ThreeBrokers, node_id: int, use: Callable[[Ask], Awaitable[None]]
) -> None:
    """Connect to one broker, and fetch there in `use`."""
    topic_id = brokers.state(node_id).catalog.topic(TOPIC).topic_id
    done = trio.Event()

    async def run(process: Process) -> None:
        async with connected(process, node_id) as connection:

            async def ask(
                offset: int, from_follower: bool, max_wait_ms: int
            ) -> tuple[PartitionFetched, dict[int, bytes]]:
                part = PartitionFetch(topic_id, 0, offset, 1 << 20, from_follower)
                request = FetchRequest(max_wait_ms, 1, 1 << 20, [part])
                results, data = await connection.call(
                    api.FETCH, request, take=lambda reply, data: (reply.results, bytes(data))
                )
                return results[0], records_in(data)

            await use(ask)
        done.set()

    brokers.world.add_node(f"asker{len(brokers.world.nodes)}").start(run)
    await done.wait()


def test_a_follower_serves_only_fetches_that_allow_followers() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> dict[int, bytes]:
            await make_topic(client)
            return await produce(client, 20)

        written = await brokers.with_client(work)
        follower = brokers.followers()[0]
        replica = brokers.partition(follower)
        assert replica is not None
        await until(lambda: replica.high_watermark == 20)

        async def use(ask: Ask) -> None:
            refused, _ = await ask(0, False, 0)
            assert refused.error is not None
            assert refused.error.code == ErrorCode.NOT_LEADER
            found, records = await ask(0, True, 0)
            assert found.error is None
            assert found.high_watermark == 20
            assert records == written
            below, _ = await ask(25, True, 0)
            assert (below.error, below.high_watermark) == (None, 20)

        await asking(brokers, follower, use)

    live(1, main)


def test_a_follower_serves_records_below_its_high_watermark_only() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await produce(client, 5)

        await brokers.with_client(work)
        follower = brokers.followers()[0]
        replica = brokers.partition(follower)
        assert replica is not None
        assert replica.follower is not None
        await until(lambda: replica.log.log_end_offset == 5)
        replica.follower.high_watermark = 3  # As if the follower knew an older high watermark.

        async def use(ask: Ask) -> None:
            found, records = await ask(0, True, 0)
            assert found.high_watermark == 3
            assert sorted(records) == [0, 1, 2]
            _, nothing = await ask(3, True, 0)
            assert nothing == {}

        await asking(brokers, follower, use)

    live(2, main)


def test_a_long_poll_at_a_follower_is_woken_by_the_high_watermark() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await until(lambda: brokers.in_sync() == set(NODES))

        await brokers.with_client(work)
        follower = brokers.followers()[0]
        await until(lambda: follows(brokers, follower))

        async def use(ask: Ask) -> None:
            async def write_later() -> None:
                await trio.sleep(2)
                await brokers.with_client(lambda client: produce(client, 1))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(write_later)
                began_at = trio.current_time()
                _, records = await ask(0, True, 20_000)
                assert list(records) == [0]
                assert 2 <= trio.current_time() - began_at < 4

        await asking(brokers, follower, use)

    live(3, main)


def test_a_follower_without_contact_to_the_cluster_refuses_fetches() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await produce(client, 5)

        await brokers.with_client(work)
        follower = brokers.followers()[0]

        async def use(ask: Ask) -> None:
            found, _ = await ask(0, True, 0)
            assert found.error is None
            for other in set(NODES) - {follower}:
                brokers.kill(other)
            await trio.sleep(12)
            found, _ = await ask(0, True, 0)
            assert found.error is not None

        await asking(brokers, follower, use)

    live(4, main)


def test_fetches_from_followers_see_all_records_in_order_while_brokers_die() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        writer = Writer()
        seen: list[int] = []

        async def write(client: Client) -> None:
            await make_topic(client)
            await writer.run(client)

        async def read(client: Client) -> None:
            async with client.consumer(
                TOPIC, auto_offset_reset="earliest", read_from="followers"
            ) as consumer:
                records = consumer.records()
                while True:
                    seen.append((await anext(records)).offset)

        async def trouble() -> None:
            for _ in range(4):
                so_far = len(seen)
                await until(lambda: len(seen) >= so_far + 20, 60)  # noqa: B023
                victim = brokers.followers()[0]
                brokers.kill(victim)
                so_far = len(seen)
                await until(lambda: len(seen) >= so_far + 20, 60)  # noqa: B023
                brokers.start(victim)
                leader = await brokers.leads()
                brokers.kill(leader)
                await brokers.leads(other_than=leader)
                brokers.start(leader)
                await until(lambda: brokers.in_sync() == set(NODES), 60)
            writer.should_stop = True

        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as writing:
                writing.start_soon(brokers.with_client, write)
                await until(lambda: len(writer.acknowledged) >= 20)
                nursery.start_soon(brokers.with_client, read)
                await trouble()
            await until(lambda: len(seen) > max(writer.of(0)), 60)
            nursery.cancel_scope.cancel()

        assert seen == list(range(len(seen))), "no record is skipped, none is read twice"

    live(5, main)


def test_a_follower_with_readers_learns_the_high_watermark_at_once() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> list[float]:
            await make_topic(client)
            await until(lambda: brokers.in_sync() == set(NODES))
            await produce(client, 1)
            delays: list[float] = []
            async with (
                client.producer() as producer,
                client.consumer(
                    TOPIC, auto_offset_reset="earliest", read_from="followers"
                ) as consumer,
            ):
                records = consumer.records()
                await anext(records)
                for number in range(10):
                    await trio.sleep(0.7)
                    await producer.send(TOPIC, b"%d" % number)
                    acknowledged_at = trio.current_time()
                    await anext(records)
                    delays.append(trio.current_time() - acknowledged_at)
            return delays

        delays = await brokers.with_client(work)

        assert max(delays[2:]) < 0.1

    live(6, main)
