"""Tests of brokers with a full, failed or stalled disk: others lead, and the broker returns."""

import contextlib
import errno
from collections.abc import Awaitable, Callable

import pytest
import trio

from tests.broker.replication.damage import flip, make_topic, produce, segments, with_records
from tests.broker.replication.three_brokers import NODES, TOPIC, Acknowledged, ThreeBrokers, live
from tests.broker.replication.three_brokers import produce as make_records
from tests.coordinator.raft_clients import until
from tests.simulation.machine.file_tree import os_error
from tests.simulation.three_brokers.runs import Writer
from tidelog.client.client import Client
from tidelog.wire.errors import DiskFullError

LAG_MAX_MS = 2000


async def longest_wait(
    brokers: ThreeBrokers, happen: Callable[[int], Awaitable[None]]
) -> tuple[Writer, float]:
    """Cause a fault at a leader during writes; return the longest wait of the producer."""
    writer = Writer()
    longest = 0.0

    async def work(client: Client) -> None:
        await make_topic(client)
        await until(lambda: brokers.in_sync() == set(NODES))
        await writer.run(client)

    async def watch() -> None:
        nonlocal longest
        count, since = 0, trio.current_time()
        while not writer.should_stop:
            await trio.sleep(0.01)
            if len(writer.acknowledged) > count or not count:
                count, since = len(writer.acknowledged), trio.current_time()
            longest = max(longest, trio.current_time() - since)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(brokers.with_client, work)
        nursery.start_soon(watch)
        await until(lambda: len(writer.acknowledged) >= 20)
        await happen(await brokers.leads())
        writer.should_stop = True
    return writer, longest


async def write_more(brokers: ThreeBrokers, leader: int) -> None:
    """Write until another broker leads, for a while."""
    await brokers.leads(other_than=leader)
    await trio.sleep(1)


@pytest.mark.invariant("I25")
def test_a_leader_with_a_full_disk_hands_over_and_rejoins_when_there_is_room() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def happen(leader: int) -> None:
            brokers.machines[leader].disk.capacity_bytes = 1
            await write_more(brokers, leader)
            assert leader not in brokers.in_sync()
            brokers.machines[leader].disk.capacity_bytes = None
            await until(lambda: brokers.in_sync() == set(NODES), 30)
            await until(lambda: brokers.leader() == leader, 30)

        writer, longest = await longest_wait(brokers, happen)
        assert longest < 1
        await brokers.check(writer.of(0))

    live(1, main, replica_lag_time_max_ms=LAG_MAX_MS)


def test_full_disks_everywhere_do_not_make_the_leadership_rotate() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def happen(leader: int) -> None:
            del leader
            for machine in brokers.machines.values():
                machine.disk.capacity_bytes = 1
            await trio.sleep(10)
            leader = await brokers.leads()
            partition = brokers.partition(leader)
            assert partition is not None
            assert partition.leader is not None
            assert partition.leader.leader_epoch <= 4
            before = partition.leader.leader_epoch
            await trio.sleep(20)
            assert partition.leader.leader_epoch == before
            for machine in brokers.machines.values():
                machine.disk.capacity_bytes = None
            await until(lambda: brokers.in_sync() == set(NODES), 60)

        writer, _ = await longest_wait(brokers, happen)
        await brokers.check(writer.of(0))

    live(2, main, replica_lag_time_max_ms=LAG_MAX_MS)


def test_a_leader_without_room_for_its_log_is_replaced() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        def refuse(operation: str, path: str) -> None:
            if operation == "create" and f"/{TOPIC}" in path:
                raise os_error(errno.ENOSPC, path)

        brokers.machines[1].disk_watcher = refuse

        async def work(client: Client) -> None:
            with contextlib.suppress(DiskFullError):
                await client.admin.create_topic(TOPIC, 3, replication_factor=3)
            for number in range(3):
                await until(lambda number=number: brokers.leader(number=number) in {2, 3})  # type: ignore[misc]
                await make_records(client, 5, partition=number)

        await brokers.with_client(work)

        brokers.machines[1].disk_watcher = None
        for number in range(3):
            await brokers.all_in_sync(number)
        await until(lambda: brokers.leader(number=0) == 1, 30)

    live(8, main, replica_lag_time_max_ms=LAG_MAX_MS)


@pytest.mark.invariant("I17")
def test_a_leader_whose_disk_fails_is_replaced_at_once() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def happen(leader: int) -> None:
            (path,) = segments(brokers, leader)
            brokers.machines[leader].disk.fail("sync", path=path)
            await write_more(brokers, leader)
            assert leader not in brokers.in_sync()
            # The log is offline until the next start has recovered it.
            brokers.kill(leader)
            brokers.start(leader)
            await until(lambda: brokers.in_sync() == set(NODES), 30)

        writer, longest = await longest_wait(brokers, happen)
        assert longest < 1
        await brokers.check(writer.of(0))

    live(3, main, replica_lag_time_max_ms=LAG_MAX_MS)


def test_a_leader_whose_disk_failed_leads_again_when_its_successor_is_lost() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            failed = await brokers.leads()
            behind, replacement = brokers.followers()
            brokers.kill(behind)
            await until(lambda: brokers.in_sync() == {failed, replacement})
            acknowledged |= await produce(client, 3, start=120)

            brokers.machines[failed].disk.fail("sync", path=segments(brokers, failed)[-1])
            async with trio.open_nursery() as nursery:
                # Too few replicas are left to acknowledge it.
                nursery.start_soon(produce, client, 1)
                await until(lambda: brokers.in_sync() == {replacement})
                nursery.cancel_scope.cancel()
            brokers.kill(failed)
            brokers.kill(replacement)
            brokers.machines[replacement].wipe_disk()
            brokers.start()

            assert await brokers.leads() == failed
            await brokers.check(acknowledged)

        await with_records(brokers, go_on)

    live(7, main, replica_lag_time_max_ms=LAG_MAX_MS)


def test_a_leader_with_a_stalled_disk_is_replaced_in_time() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def happen(leader: int) -> None:
            brokers.machines[leader].stall_disk(20)
            await write_more(brokers, leader)
            await until(lambda: brokers.in_sync() == set(NODES), 60)

        writer, longest = await longest_wait(brokers, happen)
        assert longest < LAG_MAX_MS / 1000 + 1.5
        await brokers.check(writer.of(0))

    live(4, main, replica_lag_time_max_ms=LAG_MAX_MS)


@pytest.mark.parametrize("seed", range(2))
def test_damage_found_at_a_start_removes_the_replica_from_the_isr_until_its_repair(
    seed: int,
) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            victim = await brokers.leads()
            brokers.cut_power(*NODES)
            newest = segments(brokers, victim)[-1]
            flip(brokers, victim, newest)

            brokers.start()
            await brokers.serve()
            await brokers.leads()
            acknowledged |= await produce(client, 5, start=120)
            await until(lambda: brokers.in_sync() == set(NODES), 60)

            partition = brokers.partition(victim)
            assert partition is not None
            assert partition.is_whole
            await brokers.check(acknowledged)

        await with_records(brokers, go_on)

    live(5 + seed, main, replica_lag_time_max_ms=LAG_MAX_MS)
