"""Tests of sends on three brokers: each message is there once when leaders die."""

from functools import partial
from random import Random

import pytest
import trio

from tests.broker.queues.workers import JOURNAL
from tests.broker.replication.three_brokers import NODES, ThreeBrokers, host_of, live
from tests.coordinator.raft_clients import until
from tidelog.client.client import Client
from tidelog.client.queue.queue import Queue

IDS = 25
SENDS = 4
"""Number of sends of each id."""


async def make_queue(client: Client, **settings: str) -> Queue:
    await client.admin.create_topic("orders", 1, replication_factor=3)
    await client.admin.create_queue("orders", fifo=True, **settings)  # type: ignore[arg-type]
    return client.queue("orders")


def has_told(told: dict[int, set[int]], count: int) -> bool:
    return len(told) >= count


async def send_numbers(
    queue: Queue, numbers: list[int], told: dict[int, set[int]], *, random: Random
) -> None:
    """Send ids in this order, and record the offsets of the replies."""
    for number in numbers:
        value, sent_id = b"%d" % number, str(number)
        receipt = await queue.send(value, group=b"g%d" % (number % 3), deduplication_id=sent_id)
        assert receipt.offset is not None
        told.setdefault(number, set()).add(receipt.offset)
        await trio.sleep(random.uniform(0, 0.5))


@pytest.mark.statement("b39", "q8")
@pytest.mark.parametrize("seed", range(3))
def test_each_deduplication_id_is_there_once_and_in_order_over_failovers(seed: int) -> None:
    """Statements 39 and 41, and the reply to a duplicate is true."""
    random = Random(seed)

    async def main(brokers: ThreeBrokers) -> None:
        told: dict[int, set[int]] = {}
        done_count = 0

        async def work(client: Client) -> None:
            nonlocal done_count
            queue = client.queue("orders")
            await send_numbers(queue, list(range(IDS)), told, random=random)
            done_count += 1

        await brokers.with_client(make_queue)
        async with trio.open_nursery() as nursery:
            for _ in range(SENDS):
                nursery.start_soon(brokers.with_client, work)
            for kill in range(3):
                goal = (kill + 1) * IDS // 5
                await until(partial(has_told, told, goal), 120)
                leader = await brokers.leads()
                if kill % 2:
                    brokers.cut_power(leader)
                else:
                    brokers.kill(leader)
                await brokers.leads(other_than=leader)
                brokers.start(leader)
        await until(lambda: done_count == SENDS, 300)

        at = await brokers.leads()
        records = brokers.records(at)
        assert len(records) == len(set(records.values())) == IDS
        assert {
            number: {at for at, value in records.items() if value == b"%d" % number}
            for number in told
        } == told
        for group in range(3):
            of_group = [int(value) for value in records.values() if int(value) % 3 == group]
            assert of_group == sorted(of_group)

    live(seed, main)


@pytest.mark.statement("b39")
def test_a_deposed_leader_acknowledges_no_send_and_its_message_is_sent_once() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await brokers.with_client(make_queue)
        first = await brokers.leads()
        random = Random(1)
        told: dict[int, set[int]] = {}

        async def work(client: Client) -> None:
            queue = client.queue("orders")
            await send_numbers(queue, [0], told, random=random)
            others = [host_of(node) for node in NODES if node != first]
            heal = brokers.world.network.partition([host_of(first)], others)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(send_numbers, queue, [1, 2, 1, 0], told, random=random))
                await brokers.leads(other_than=first)
                heal()

        await brokers.with_client(work)
        records = brokers.records(await brokers.leads())
        assert list(records.values()) == [b"0", b"1", b"2"]
        assert told == {0: {0}, 1: {1}, 2: {2}}

    live(7, main)


@pytest.mark.statement("b47")
def test_a_purge_resets_deduplication_where_another_broker_leads_the_records() -> None:
    """Statement 47: the leader of the records asks the leader of the journal."""

    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> list[int | None]:
            queue = await make_queue(client)

            async def send() -> int | None:
                return (await queue.send(b"a", group=b"g", deduplication_id="1")).offset

            found = [await send()]
            first = await brokers.leads()
            partition = brokers.partition(first)
            assert partition is not None
            # As if the disk of the records did not answer for a while.
            partition.is_stalled = True
            assert partition.status_changed is not None
            partition.status_changed(partition)
            await brokers.leads(other_than=first)
            partition.is_stalled = False
            assert brokers.leader(JOURNAL) == first
            found.append(await send())
            await queue.purge()
            found += [await send(), await send()]
            assert brokers.leader(JOURNAL) == first
            return found

        assert await brokers.with_client(work) == [0, 0, 1, 1]

    live(8, main)
