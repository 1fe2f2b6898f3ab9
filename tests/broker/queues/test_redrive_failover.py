"""Tests of redrives on three brokers: each message is moved back once when leaders die."""

from collections import Counter

import pytest
import trio

from tests.broker.replication.three_brokers import ThreeBrokers, live
from tests.coordinator.raft_clients import until
from tidelog.client.client import Client

MESSAGES = 24
PARTITIONS = 2


def count_in(brokers: ThreeBrokers, topic: str) -> Counter[tuple[int, bytes]]:
    """Return how often each value is in each partition, at its leader."""
    found: Counter[tuple[int, bytes]] = Counter()
    for number in range(PARTITIONS):
        leader = brokers.leader(topic, number)
        if leader is not None:
            records = brokers.records(leader, number, topic).values()
            found.update((number, value) for value in records)
    return found


async def make_dead_letters(client: Client) -> None:
    for name in ("dead", "orders"):
        await client.admin.create_topic(name, PARTITIONS, replication_factor=3)
    await client.admin.create_queue("dead")
    await client.admin.create_queue("orders", dead_letter_queue="dead")
    async with client.producer() as producer:
        for number in range(MESSAGES):
            await producer.send("orders", b"order %d" % number, partition=number % PARTITIONS)
    queue = client.queue("orders")
    left = MESSAGES
    while left:
        for message in await queue.receive(10, wait=5):
            await message.reject("no")
            left -= 1


@pytest.mark.statement("b61")
@pytest.mark.parametrize("seed", range(2))
def test_a_redrive_of_several_partitions_moves_each_message_once(seed: int) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await brokers.with_client(make_dead_letters)
        await until(lambda: count_in(brokers, "dead").total() == MESSAGES, 60)
        sent = count_in(brokers, "orders")

        async def begin(client: Client) -> None:
            await client.queue("dead").redrive(messages_per_s=2)

        await brokers.with_client(begin)
        await until(lambda: count_in(brokers, "orders").total() >= MESSAGES + 6, 60)
        leader = brokers.leader("queue@dead")
        assert leader is not None
        brokers.kill(leader)
        await until(lambda: brokers.leader("queue@dead") not in {None, leader}, 60)
        brokers.start(leader)
        await until(lambda: count_in(brokers, "orders").total() >= 2 * MESSAGES, 120)
        await trio.sleep(20)

        assert count_in(brokers, "orders") == sent + sent

        async def check(client: Client) -> None:
            report = await client.queue("dead").redrive_status()
            assert (report.moved, report.to_move, report.left) == (MESSAGES, MESSAGES, 0)
            assert report.is_over
            counts = await client.queue("dead").counts()
            assert sum(each.visible + each.dead for each in counts) == 0

        await brokers.with_client(check)

    live(seed, main)
