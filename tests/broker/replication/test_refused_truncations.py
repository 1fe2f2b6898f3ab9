"""Tests of followers that know more committed records than their leader has."""

from collections.abc import Mapping
from typing import Final

import trio

from tests.advice import recommended
from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    Acknowledged,
    ThreeBrokers,
    live,
    make_topic,
    produce,
)
from tests.coordinator.raft_clients import until
from tests.simulation.machine.world import World
from tidelog.client.client import Client
from tidelog.coordinator.metadata.records import PartitionRegistration

_COUNT: Final = 20
_KEPT: Final = 15
"""Number of records at the replica that has lost the others."""


def registered(brokers: ThreeBrokers) -> PartitionRegistration:
    """Return the partition in the newest metadata of a broker."""
    states = [brokers.state(node) for node in brokers.brokers]
    found = [state.partition(state.catalog.topic(TOPIC).topic_id, 0) for state in states]
    return max((each for each in found if each), key=lambda each: each.partition_epoch)


def heard(world: World, event: str) -> list[Mapping[str, object]]:
    """Return the fields of each event of this name from now on."""
    found: list[Mapping[str, object]] = []

    def observe(_node: str, name: str, fields: Mapping[str, object]) -> None:
        if name == event:
            found.append(fields)

    world.observe(observe)
    return found


async def with_records(brokers: ThreeBrokers, client: Client) -> tuple[int, int, int, Acknowledged]:
    """Return the leader, the next one and the last one, which all know all records as committed."""
    await make_topic(client)
    await until(lambda: brokers.in_sync() == set(NODES))
    acknowledged = await produce(client, _COUNT)
    await until(lambda: brokers.is_settled(1))
    leader = await brokers.leads()
    following, last = (node for node in registered(brokers).replicas if node != leader)
    return leader, following, last, acknowledged


def lose_the_end(brokers: ThreeBrokers, node_id: int) -> None:
    """Let a replica lose committed records, unnoticed by itself and by the cluster."""
    partition = brokers.partition(node_id)
    assert partition is not None
    partition.log.truncate(_KEPT)
    assert partition.follower is not None
    partition.follower.truncated(_KEPT)


def test_a_leader_that_lacks_committed_records_steps_down() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        refused = heard(brokers.world, "truncation_refused")

        async def work(client: Client) -> None:
            leader, following, last, acknowledged = await with_records(brokers, client)
            lose_the_end(brokers, following)

            brokers.stop(leader)
            await until(lambda: brokers.leader() == last, 10)
            brokers.start(leader)

            await brokers.check(acknowledged)
            assert refused
            assert refused[0]["leader_id"] == following
            assert refused[0]["offset"] == _KEPT
            assert refused[0]["high_watermark"] == _COUNT
            assert refused[0]["record_count"] == _COUNT - _KEPT
            assert registered(brokers).data_loss_epoch is None

        await brokers.with_client(work)

    live(1, main)


async def leave_one_with_more(brokers: ThreeBrokers, client: Client) -> tuple[int, int]:
    """Return a leader that lacks records, and a replica outside the ISR that has them."""
    leader, following, last, _ = await with_records(brokers, client)
    brokers.stop(last)
    await until(lambda: brokers.in_sync() == {leader, following}, 30)
    lose_the_end(brokers, following)
    brokers.stop(leader)
    await brokers.leads(other_than=leader)
    assert brokers.leader() == following
    await until(lambda: brokers.machines[leader].process is None, 10)
    brokers.start(last)
    await until(lambda: bool(registered(brokers).refusing_replicas), 30)
    return following, last


def test_a_replica_outside_the_isr_keeps_its_records_until_the_loss_is_accepted() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        refused = heard(brokers.world, "truncation_refused")
        truncated = heard(brokers.world, "replica_truncated")

        async def work(client: Client) -> None:
            leader, last = await leave_one_with_more(brokers, client)
            (refusing,) = registered(brokers).refusing_replicas
            assert (refusing.node_id, refusing.offset) == (last, _KEPT)
            assert refusing.high_watermark > _KEPT
            told_count = len(refused)  # The old leader may have refused before it stopped.
            assert told_count
            before = registered(brokers)

            await trio.sleep(5)  # The follower asks its leader again and again.
            assert registered(brokers) == before
            assert truncated == []
            assert last not in brokers.in_sync()

            command = recommended(str(refused[-1]["advice"]))
            place = ["--topic", TOPIC, "--partition", "0"]
            assert command == ["cluster", "elect-leaders", *place, "--accept-data-loss"]
            (elected,) = await client.admin.elect_leaders([(TOPIC, 0)], accept_data_loss=True)

            assert elected.error is None
            assert (elected.leader_id, elected.may_have_lost_data) == (leader, True)
            await until(lambda: brokers.in_sync() == {leader, last}, 10)
            assert [fields["severity"] for fields in truncated] == ["warning"]
            assert registered(brokers).refusing_replicas == ()
            assert len(refused) == told_count, "one warning in a leader epoch"

        await brokers.with_client(work)

    live(2, main)
