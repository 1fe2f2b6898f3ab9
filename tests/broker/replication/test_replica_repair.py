"""What is damaged is mended with what the leader has, and then the replica comes back."""

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
def test_a_damaged_follower_leaves_is_repaired_and_comes_back() -> None:
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


def test_from_a_damaged_leader_another_one_takes_over_and_nobody_is_served_the_damage() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            leader = await brokers.leads()
            # What a process has written itself it sends from the page cache, and trusts.
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
    """Stop a follower, damage the beginning of its log, and delete that everywhere; return which.

    Nothing tells where in its file the rest would have to be (seed 9100002).
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


def test_damage_that_begins_with_what_nobody_has_any_more_has_the_replica_begun_anew() -> None:
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


def test_no_log_is_begun_anew_by_what_a_broker_knows_of_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have been let in since, and be counted on with a log that is gone."""
    catch_up, asked = CommandClient.catch_up, list[bool]()

    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            victim = await _lose_the_beginning(brokers, client, acknowledged)

            async def refuse(self: CommandClient, *, timeout_s: float) -> None:
                del self, timeout_s
                asked.append(True)
                raise RequestTimedOutError("nobody who leads answered")

            monkeypatch.setattr(CommandClient, "catch_up", refuse)
            brokers.start(victim)
            await until(lambda: brokers.partition(victim) is not None, 30)
            read_all(brokers, victim)  # Whoever reads what is damaged finds it.
            await until(lambda: len(asked) >= 3, 60)
            assert is_damaged(brokers, victim), "nothing was begun anew"

            monkeypatch.setattr(CommandClient, "catch_up", catch_up)
            await until(lambda: brokers.in_sync() == set(NODES), 60)
            await until(lambda: not is_damaged(brokers, victim), 60)
            await brokers.check(acknowledged)

        await with_records(brokers, go_on)

    live(9, main)


@pytest.mark.parametrize("how", ["flip", "cut", "cut to nothing", "flip in all"])
def test_a_broker_whose_files_were_damaged_while_it_was_down_mends_them_and_joins(how: str) -> None:
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
            # Before, it would have nothing to give up, and be mended a moment later.
            await until(lambda: knows_that_it_is_in_sync(brokers, victim))
            if read_all(brokers, victim):
                # A start does not look at what is sealed; whoever reads it finds it.
                await leave_and_come_back(brokers, victim)

            await brokers.check(acknowledged)

        await with_records(brokers, go_on)

    live(3, main)


@pytest.mark.invariant("I59")
@pytest.mark.parametrize("minimum", [1, 2])
def test_the_last_one_standing_leads_on_with_its_damage_until_another_one_is_back(
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
            assert await consume(client, 20) == list(acknowledged.values())[:20], "what is whole"

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
def test_nothing_acknowledged_is_lost_while_replicas_rot_one_after_the_other() -> None:
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
