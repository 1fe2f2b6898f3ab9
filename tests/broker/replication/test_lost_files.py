"""Tests of replicas that lose their files while they are in the ISR: others have the records."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random

import pytest
import trio

from tests.broker.replication.damage import consume, make_topic, produce, segments, with_records
from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    Acknowledged,
    ThreeBrokers,
    host_of,
    live,
)
from tests.coordinator.raft_clients import until
from tests.simulation.machine.link import LinkQuality
from tidelog.client.client import Client
from tidelog.logstore.checkpoint import CHECKPOINT_NAME
from tidelog.wire.errors import TidelogError

_LONG_S = 15.0
"""Seconds, longer than a start waits for other replicas, and than a session lasts."""


def _all_files(brokers: ThreeBrokers, node_id: int) -> list[str]:
    disk = brokers.machines[node_id].disk
    return [path for path in disk.paths() if path.startswith(f"topics/{TOPIC}.")]


def _lose_all(brokers: ThreeBrokers, node_id: int) -> None:
    disk = brokers.machines[node_id].disk
    for path in _all_files(brokers, node_id):
        disk.lose_file(path)


def _lose_records(brokers: ThreeBrokers, node_id: int) -> None:
    disk = brokers.machines[node_id].disk
    for path in segments(brokers, node_id):
        disk.lose_file(path)


def _lose_checkpoint_and_the_end(brokers: ThreeBrokers, node_id: int) -> None:
    disk = brokers.machines[node_id].disk
    for path in _all_files(brokers, node_id):
        if path.endswith(CHECKPOINT_NAME):
            disk.flip_bit(path, 20, 0)
    for path in segments(brokers, node_id)[1:]:
        disk.lose_file(path)


def _lose_the_manifest_as_well(brokers: ThreeBrokers, node_id: int) -> None:
    _lose_all(brokers, node_id)
    brokers.machines[node_id].disk.lose_file("replicas")


def _spoil_the_manifest_as_well(brokers: ThreeBrokers, node_id: int) -> None:
    _lose_all(brokers, node_id)
    brokers.machines[node_id].disk.flip_bit("replicas", 18, 1)


_LOSSES = [
    _lose_all,
    _lose_records,
    _lose_checkpoint_and_the_end,
    _lose_the_manifest_as_well,
    _spoil_the_manifest_as_well,
]


async def _leave_one_behind(
    brokers: ThreeBrokers, *, is_clean: bool = False
) -> tuple[int, int, int]:
    """Stop all; return the old leader, a node stopped before, and one with all records.

    The first two are the majority of the nodes. After a clean stop nothing is compared at the next
    start: only the lost files themselves keep the old leader from leading.
    """
    leader = await brokers.leads()
    behind, other = brokers.followers()
    brokers.kill(behind)
    await until(lambda: brokers.in_sync() == {leader, other}, 30)
    if not is_clean:
        brokers.cut_power(leader, other)
        return leader, behind, other
    for node_id in (other, leader):
        brokers.stop(node_id)
        await until(lambda: brokers.machines[node_id].process is None, 30)  # noqa: B023 - awaited
    return leader, behind, other


@pytest.mark.parametrize("lose", _LOSSES)
def test_a_replica_without_its_files_does_not_lead_although_it_returns_first(
    lose: Callable[[ThreeBrokers, int], None],
) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            victim = await brokers.leads()
            last, other = brokers.followers()
            brokers.cut_power(*NODES)
            lose(brokers, victim)
            brokers.start(victim, last)
            await trio.sleep(_LONG_S)
            assert brokers.leader() != victim
            brokers.start(other)
            assert await brokers.leads() != victim
            acknowledged |= await produce(client, 3, start=120)
            await brokers.check(acknowledged)

        await with_records(brokers, go_on)

    live(1, main)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("lose", _LOSSES)
def test_a_replica_without_its_files_waits_for_a_complete_replica_without_end(
    lose: Callable[[ThreeBrokers, int], None], *, is_clean: bool
) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            del client
            victim, behind, other = await _leave_one_behind(brokers, is_clean=is_clean)
            lose(brokers, victim)
            brokers.start(victim, behind)
            await trio.sleep(_LONG_S)
            assert brokers.leader() is None
            brokers.start(other)
            assert await brokers.leads() == other
            await brokers.check(acknowledged)

        await with_records(brokers, go_on)

    live(2, main)


@pytest.mark.parametrize("lose", _LOSSES)
def test_a_lost_replica_is_still_suspect_after_a_crash_right_after_its_discovery(
    lose: Callable[[ThreeBrokers, int], None],
) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            del client
            victim, behind, other = await _leave_one_behind(brokers)
            lose(brokers, victim)
            random = Random(3)
            for _ in range(6):
                brokers.start(victim, behind)
                await trio.sleep(random.uniform(0.2, 1.5))
                brokers.cut_power(victim, behind)
            brokers.start(victim, behind)
            await trio.sleep(_LONG_S)
            assert brokers.leader() is None
            brokers.start(other)
            assert await brokers.leads() == other
            await brokers.check(acknowledged)

        await with_records(brokers, go_on)

    live(3, main)


def test_the_only_replica_without_its_files_has_no_leader_until_an_unclean_election() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await client.admin.create_topic(TOPIC, 1, replication_factor=1)
            victim = await brokers.leads()
            await produce(client, 3)
            brokers.cut_power(victim)
            _lose_all(brokers, victim)
            brokers.start(victim)
            await trio.sleep(_LONG_S)
            assert brokers.leader() is None
            (outcome,) = await client.admin.elect_leaders([(TOPIC, 0)])
            assert outcome.error is not None

            await client.admin.elect_leaders([(TOPIC, 0)], accept_data_loss=True)
            assert await brokers.leads() == victim
            acknowledged = await produce(client, 2)
            assert await consume(client, 2) == list(acknowledged.values())
            # A start does not lose it again.
            brokers.kill(victim)
            brokers.start(victim)
            assert await brokers.leads() == victim
            assert brokers.records(victim) == acknowledged

        await brokers.with_client(work)

    live(4, main)


def test_the_only_replica_that_lost_only_its_checkpoint_leads() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await client.admin.create_topic(TOPIC, 1, replication_factor=1)
            victim = await brokers.leads()
            acknowledged = await produce(client, 3)
            brokers.cut_power(victim)
            for path in _all_files(brokers, victim):
                if path.endswith(CHECKPOINT_NAME):
                    brokers.machines[victim].disk.lose_file(path)
            brokers.start(victim)
            assert await brokers.leads() == victim
            assert brokers.records(victim) == acknowledged

        await brokers.with_client(work)

    live(5, main)


def test_topics_created_at_any_moment_before_a_power_cut_of_all_have_leaders_again() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            for number in range(0, 30, 3):
                async with trio.open_nursery() as nursery:
                    with trio.move_on_after(0.001 * number):
                        nursery.start_soon(make_named, client, f"{TOPIC}{number}")
                        await trio.sleep_forever()
                    brokers.cut_power(*NODES)
                    nursery.cancel_scope.cancel()
                brokers.start()
                await brokers.serve()
                await until(lambda: all_are_led(brokers), 30)

        await brokers.with_client(work)

    async def make_named(client: Client, name: str) -> None:
        with suppress(TidelogError):
            await client.admin.create_topic(name, 3, replication_factor=3)

    live(6, main)


def all_are_led(brokers: ThreeBrokers) -> bool:
    state = brokers.state(min(brokers.brokers))
    return all(
        len(partition.in_sync_replicas) == len(NODES) and partition.leader is not None
        for topic in state.catalog.topics
        for partition in state.partitions(topic.topic_id)
    )


def test_the_removal_of_a_lost_replica_is_reported_once_and_names_the_partition() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        removed: list[tuple[str, object, object]] = []

        def observe(host: str, event: str, fields: Mapping[str, object]) -> None:
            if event == "replica_removed_from_isr":
                removed.append((host, fields["topic"], fields["partition"]))

        brokers.world.observe(observe)

        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            del client
            leader = await brokers.leads()
            victim = next(node for node in NODES if node != leader)
            brokers.cut_power(victim)
            _lose_all(brokers, victim)
            # The removal takes longer than the interval at which a task looks for more.
            brokers.world.network.set_quality(LinkQuality(delay_min_s=0.08))
            brokers.start(victim)
            await until(lambda: len(brokers.brokers) == len(NODES), 30)
            brokers.world.network.set_quality(LinkQuality())
            await brokers.check(acknowledged)

            assert removed == [(host_of(victim), TOPIC, 0)]

        await with_records(brokers, go_on)

    live(8, main)


def test_a_topic_created_while_a_broker_was_down_is_not_lost_there() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        events: list[str] = []
        brokers.world.observe(lambda _, event, __: events.append(event))

        async def work(client: Client) -> None:
            brokers.kill(3)
            await until(lambda: not brokers.are_live(3), 30)
            await make_topic(client)
            acknowledged = await produce(client, 3)
            brokers.start(3)
            await brokers.check(acknowledged)
            assert "replica_suspect" not in events

        await brokers.with_client(work)

    live(7, main)
