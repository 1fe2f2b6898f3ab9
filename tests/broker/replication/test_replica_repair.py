"""Tests of replica repair: damage is replaced by the leader's batches, and the replica rejoins."""

import pytest
import trio

from tests.broker.replication.damage import (
    SEGMENT_BYTES,
    VALUE,
    consume,
    flip,
    is_damaged,
    knows_that_it_is_in_sync,
    leave_and_come_back,
    make_topic,
    produce,
    read_all,
    segments,
    with_records,
)
from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    Acknowledged,
    ThreeBrokers,
    live,
)
from tests.coordinator.raft_clients import until
from tests.simulation.three_brokers.runs import Writer
from tidelog.client.client import Client
from tidelog.coordinator.controller.command_client import CommandClient
from tidelog.wire.errors import RequestTimedOutError


@pytest.mark.invariant("I9")
def test_a_damaged_follower_leaves_the_isr_is_repaired_and_rejoins() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            leader, follower = await brokers.leads(), brokers.followers()[0]
            oldest, *_, newest = segments(brokers, follower)
            assert oldest != newest
            flip(brokers, follower, oldest)
            assert read_all(brokers, follower) == 1

            await until(lambda: brokers.in_sync() == {*NODES} - {follower}, 2)
            acknowledged |= await produce(client, 5, start=120)
            await until(lambda: brokers.in_sync() == set(NODES), 10)

            assert not is_damaged(brokers, follower)
            assert brokers.leader() == leader, "a follower's damage does not move the leader"
            await brokers.check(acknowledged)

        await with_records(brokers, go_on)

    live(1, main)


def test_a_damaged_leader_is_replaced_and_serves_no_damaged_records() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            leader = await brokers.leads()
            # A process sends records that it wrote from the page cache, unchecked.
            brokers.stop(leader)
            await brokers.leads(other_than=leader)
            await until(lambda: brokers.machines[leader].process is None)
            brokers.start(leader)
            await until(lambda: brokers.leader() == leader, 30)
            await brokers.all_in_sync()
            for path in segments(brokers, leader)[:2]:
                flip(brokers, leader, path)

            assert await consume(client, 120) == list(acknowledged.values())

            assert brokers.leader() != leader
            acknowledged |= await produce(client, 5, start=120)
            await until(lambda: brokers.in_sync() == set(NODES), 10)
            assert not is_damaged(brokers, leader)
            await until(lambda: brokers.leader() == leader, 20)

        await with_records(brokers, go_on)

    live(2, main)


async def _lose_the_beginning(
    brokers: ThreeBrokers, client: Client, acknowledged: Acknowledged
) -> int:
    """Stop a follower, damage its log's beginning, and delete that everywhere; return its node id.

    The position of the rest in its file is unknown (seed 9100002).
    """
    await brokers.leads()
    victim = brokers.followers()[0]
    brokers.stop(victim)
    await until(lambda: brokers.machines[victim].process is None)
    oldest = segments(brokers, victim)[0]
    for position in range(100, 5 * len(VALUE), 5_000):
        flip(brokers, victim, oldest, position=position)
    await client.admin.delete_records(TOPIC, 0, 3)
    del acknowledged[0], acknowledged[1], acknowledged[2]
    return victim


def test_a_replica_whose_damage_begins_with_deleted_records_is_recreated() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            victim = await _lose_the_beginning(brokers, client, acknowledged)

            brokers.start(victim)
            await until(lambda: brokers.in_sync() == set(NODES), 30)
            if read_all(brokers, victim):
                await leave_and_come_back(brokers, victim)

            assert read_all(brokers, victim) == 0
            await brokers.check(acknowledged)

        await with_records(brokers, go_on)

    live(9, main)


def test_no_log_is_recreated_by_outdated_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The replica may have joined the ISR since, and would be in it without its log."""
    catch_up, asked = CommandClient.catch_up, list[bool]()

    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            victim = await _lose_the_beginning(brokers, client, acknowledged)

            async def refuse(self: CommandClient, *, timeout_s: float) -> None:
                del self, timeout_s
                asked.append(True)
                raise RequestTimedOutError("no controller answered")

            monkeypatch.setattr(CommandClient, "catch_up", refuse)
            brokers.start(victim)
            await until(lambda: brokers.partition(victim) is not None, 30)
            read_all(brokers, victim)  # Reading damaged records finds the damage.
            await until(lambda: len(asked) >= 3, 60)
            assert is_damaged(brokers, victim), "no log was recreated"

            monkeypatch.setattr(CommandClient, "catch_up", catch_up)
            await until(lambda: brokers.in_sync() == set(NODES), 60)
            await until(lambda: not is_damaged(brokers, victim), 60)
            await brokers.check(acknowledged)

        await with_records(brokers, go_on)

    live(9, main)


@pytest.mark.parametrize("how", ["flip", "cut", "cut to nothing", "flip in all"])
def test_a_broker_whose_files_were_damaged_while_it_was_down_repairs_them_and_joins(
    how: str,
) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            victim = await brokers.leads()
            brokers.stop(victim)
            await until(lambda: brokers.machines[victim].process is None)
            disk = brokers.machines[victim].disk
            for path in segments(brokers, victim):
                size = len(disk.durable_bytes(path))
                if how == "flip":
                    flip(brokers, victim, path)
                elif how == "flip in all":
                    for position in range(300, size, 50_000):
                        flip(brokers, victim, path, position=position)
                else:
                    disk.cut_file(path, size // 2 if how == "cut" else 0)
            acknowledged |= await produce(client, 30, start=120)

            brokers.start(victim)
            await until(lambda: brokers.in_sync() == set(NODES), 60)
            # Before, it would not be in the ISR, and be repaired a moment later.
            await until(lambda: knows_that_it_is_in_sync(brokers, victim))
            if read_all(brokers, victim):
                # A start does not check sealed segments; a read finds the damage.
                await leave_and_come_back(brokers, victim)

            await brokers.check(acknowledged)

        await with_records(brokers, go_on)

    live(3, main)


@pytest.mark.invariant("I59")
@pytest.mark.parametrize("minimum", [1, 2])
def test_the_last_replica_in_sync_leads_with_its_damage_until_another_one_returns(
    minimum: int,
) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            config = {"min_insync_replicas": str(minimum), "segment_bytes": str(SEGMENT_BYTES)}
            await client.admin.create_topic(TOPIC, 1, replication_factor=2, config=config)
            leader = await brokers.leads()
            await until(lambda: len(brokers.in_sync()) == 2)
            (other,) = brokers.in_sync() - {leader}
            acknowledged = await produce(client, 120)
            await until(lambda: brokers.end_of(other) == brokers.end_of(leader))
            brokers.kill(other)
            await until(lambda: brokers.in_sync() == {leader}, 30)
            flip(brokers, leader, segments(brokers, leader)[0])
            assert read_all(brokers, leader) == 1
            await trio.sleep(5)
            assert brokers.leader() == leader
            assert await consume(client, 20) == list(acknowledged.values())[:20], "not damaged"

            brokers.start(other)
            await brokers.leads(other_than=leader)
            await until(lambda: len(brokers.in_sync()) == 2, 30)

            assert not is_damaged(brokers, leader)
            for node in (leader, other):
                assert read_all(brokers, node) == 0
                assert brokers.records(node) == acknowledged

        await brokers.with_client(work)

    live(4, main)


@pytest.mark.invariant("I9")
def test_nothing_acknowledged_is_lost_while_replicas_are_damaged_one_after_the_other() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        writer = Writer()

        async def work(client: Client) -> None:
            await make_topic(client)
            await writer.run(client)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(brokers.with_client, work)
            await until(lambda: len(writer.acknowledged) >= 50)
            for round_ in range(6):
                victim = NODES[round_ % 3]
                (path,) = segments(brokers, victim)
                flip(brokers, victim, path, position=200 + 97 * round_)
                assert read_all(brokers, victim) == 1
                await leave_and_come_back(brokers, victim)
            writer.should_stop = True

        await brokers.check(writer.of(0))

    live(7, main)
