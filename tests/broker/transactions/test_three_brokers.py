"""Tests of transactions on three brokers: they become visible atomically and once over failures."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from random import Random

import pytest
import trio

from tests.broker.replication.three_brokers import ThreeBrokers, live, make_topic
from tests.coordinator.raft_clients import until
from tidelog.client.client import Client
from tidelog.client.transactions.transaction import TaskResult
from tidelog.wire.errors import StaleTransactionError, TidelogError, TransactionGoneError

PARTITIONS = 2


async def stage(client: Client, transaction_id: int, task: int, *, count: int = 20) -> TaskResult:
    """Stage records of one task in all partitions."""
    async with client.transaction("job", transaction_id).task() as staging:
        for partition in range(PARTITIONS):
            values = [
                b"%d/%d/%d/%d" % (transaction_id, task, partition, each) for each in range(count)
            ]
            for first in range(0, count, 4):
                await staging.send_many("orders", values[first : first + 4], partition=partition)
    return staging.result


def expected(transactions: dict[int, list[int]], partition: int, count: int = 20) -> list[bytes]:
    """Return the expected values of a partition, for these tasks of these transactions."""
    return [
        b"%d/%d/%d/%d" % (transaction_id, task, partition, each)
        for transaction_id, tasks in transactions.items()
        for task in tasks
        for each in range(count)
    ]


async def values(brokers: ThreeBrokers, partition: int) -> list[bytes]:
    """Return the committed values of a partition, once it has a leader."""
    await until(lambda: brokers.leader(number=partition) is not None, 60)
    leader = brokers.leader(number=partition)
    assert leader is not None
    replica = brokers.partition(leader, number=partition)
    assert replica is not None
    found = brokers.records(leader, partition)
    return [found[at] for at in sorted(found) if at < replica.high_watermark]


async def check(brokers: ThreeBrokers, transactions: dict[int, list[int]]) -> None:
    for partition in range(PARTITIONS):
        assert await values(brokers, partition) == expected(transactions, partition)


def staged_bytes(brokers: ThreeBrokers) -> int:
    """Return the number of records in staging logs, over all partitions, at their leaders."""
    held = 0
    for number in range(PARTITIONS):
        leader = brokers.leader("staged@orders", number)
        replica = None if leader is None else brokers.partition(leader, "staged@orders", number)
        if replica is None:
            return -1
        held += replica.log.log_end_offset - replica.log.log_start_offset
    return held


def test_staged_records_are_invisible_until_the_commit_and_then_ordered_by_task() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client, PARTITIONS)
            first, loser = await stage(client, 0, 1), await stage(client, 0, 2)
            last = await stage(client, 0, 3)
            await check(brokers, {})
            assert loser.record_count == 2 * 20

            await client.transaction("job", 0).commit([last, first])
            await check(brokers, {0: [3, 1]})
            await client.transaction("job", 0).commit([loser])
            assert await client.transaction("job", 0).abort(), "it is committed, and stays so"
            again = await stage(client, 0, 4)
            assert again.places == ()
            await client.transaction("job", 0).commit([again])
            await check(brokers, {0: [3, 1]})
            await until(lambda: staged_bytes(brokers) == 0, 90)

        await brokers.with_client(work)

    live(1, main)


def test_a_commit_is_answered_by_the_leaders_of_its_partitions() -> None:
    """The record that all is appended follows a second later, with many others."""

    async def main(brokers: ThreeBrokers) -> None:
        def pending_counts() -> set[int]:
            return {brokers.state(each).transactions.pending_count for each in brokers.brokers}

        async def work(client: Client) -> None:
            await make_topic(client, PARTITIONS)
            for transaction_id in range(4):
                staged = await stage(client, transaction_id, 1)
                began_at = trio.current_time()
                await client.transaction("job", transaction_id).commit([staged])
                assert trio.current_time() - began_at < 0.5
            assert pending_counts() != {0}
            await check(brokers, {each: [1] for each in range(4)})
            await until(lambda: pending_counts() == {0}, 10)

        await until(lambda: brokers.state(1).feature_level > 0, 30)
        await brokers.with_client(work)

    live(4, main)


def test_an_aborted_transaction_is_never_visible_and_a_lower_id_is_refused() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client, PARTITIONS)
            aborted = await stage(client, 5, 1)
            assert not await client.transaction("job", 5).abort()
            with pytest.raises(TransactionGoneError):
                await client.transaction("job", 5).commit([aborted])
            await client.transaction("job", 6).commit([await stage(client, 6, 1)])
            with pytest.raises(StaleTransactionError):
                await stage(client, 5, 2)
            await check(brokers, {6: [1]})

        await brokers.with_client(work)

    live(2, main)


def test_a_transaction_past_its_timeout_is_dropped_and_its_commit_refused() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client, PARTITIONS)
            transaction = client.transaction("job", 5, timeout=2)
            async with transaction.task() as task:
                await task.send_many("orders", [b"late"], partition=0)
                await trio.sleep(10)  # A task keeps the transaction open.
                await task.send_many("orders", [b"later"], partition=1)
            await trio.sleep(4)
            with pytest.raises(TransactionGoneError):
                await transaction.commit([task.result])
            await until(lambda: staged_bytes(brokers) == 0, 90)
            await check(brokers, {})

        await brokers.with_client(work)

    live(3, main)


@pytest.mark.parametrize("seed", range(3))
def test_transactions_are_appended_once_although_leaders_die_meanwhile(seed: int) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        committed: dict[int, list[int]] = {}

        async def work(client: Client) -> None:
            await make_topic(client, PARTITIONS)
            for transaction_id in range(6):
                while transaction_id not in committed:
                    try:
                        tasks = [await stage(client, transaction_id, task) for task in (0, 1)]
                        await client.transaction("job", transaction_id).commit(tasks)
                        committed[transaction_id] = [0, 1]
                    except TidelogError:
                        await trio.sleep(0.5)

        async def harass() -> None:
            random = Random(seed)
            while True:
                await trio.sleep(random.uniform(1, 6))
                victim = brokers.leader(number=random.randrange(PARTITIONS)) or 1
                if random.random() < 0.5:
                    brokers.kill(victim)
                else:
                    brokers.cut_power(victim)
                with trio.CancelScope(shield=True):
                    await trio.sleep(random.uniform(0.1, 8))
                    brokers.start(victim)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(harass)
            await brokers.with_client(work)
            nursery.cancel_scope.cancel()
        await brokers.serve()
        await check(brokers, committed)

    live(10 + seed, main)
