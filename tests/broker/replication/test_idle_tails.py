"""Tests of damage at the end of an idle log: the replica does not lead while others have more."""

from collections.abc import Callable

import pytest
import trio

from tests.broker.replication.damage import flip, segments
from tests.broker.replication.test_refused_truncations import heard
from tests.broker.replication.three_brokers import (
    NODES,
    ThreeBrokers,
    live,
    make_topic,
    produce,
)
from tests.coordinator.raft_clients import until
from tidelog.client.client import Client

_COUNT = 40


def flip_a_bit(brokers: ThreeBrokers, node_id: int) -> None:
    path = segments(brokers, node_id)[-1]
    size = len(brokers.machines[node_id].disk.durable_bytes(path))
    flip(brokers, node_id, path, position=size - 5)


def cut_the_end(brokers: ThreeBrokers, node_id: int) -> None:
    path = segments(brokers, node_id)[-1]
    disk = brokers.machines[node_id].disk
    disk.cut_file(path, len(disk.durable_bytes(path)) - 300)


def all_written_down(brokers: ThreeBrokers) -> bool:
    """Return whether each replica has all records and the high watermark in its checkpoint."""
    replicas = [brokers.partition(node) for node in NODES]
    return all(
        replica is not None
        and replica.log.high_watermark == _COUNT
        and not replica.log.is_checkpoint_behind
        for replica in replicas
    )


@pytest.mark.parametrize("damage", [flip_a_bit, cut_the_end])
@pytest.mark.parametrize("victim", NODES)
def test_damage_at_the_end_of_an_idle_log_loses_no_record(
    damage: Callable[[ThreeBrokers, int], None], victim: int
) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        truncated = heard(brokers.world, "replica_truncated")
        torn = heard(brokers.world, "torn_tail_truncated")

        async def work(client: Client) -> None:
            await make_topic(client)
            await until(lambda: brokers.in_sync() == set(NODES))
            acknowledged = await produce(client, _COUNT)
            await until(lambda: all_written_down(brokers), 3)
            for node in NODES:
                brokers.kill(node)
            damage(brokers, victim)

            brokers.start(victim)
            await trio.sleep(4)
            brokers.start(*{*NODES} - {victim})

            await brokers.leads()
            assert brokers.leader() != victim
            await brokers.check(acknowledged)
            assert truncated == []
            assert torn == []

        await brokers.with_client(work)

    live(1, main)


def test_a_torn_tail_is_told_once() -> None:
    """The records were acknowledged, and the disk has lost them before the log fell idle."""

    async def main(brokers: ThreeBrokers) -> None:
        torn = heard(brokers.world, "torn_tail_truncated")

        async def work(client: Client) -> None:
            await make_topic(client)
            await until(lambda: brokers.in_sync() == set(NODES))
            await produce(client, _COUNT)
            victim = brokers.followers()[0]
            brokers.kill(victim)
            cut_the_end(brokers, victim)

            brokers.start(victim)
            await until(lambda: bool(torn), 10)
            await brokers.all_in_sync()

            (told,) = torn
            assert told["severity"] == "warning"
            assert told["may_lack_committed"] is False
            assert 0 < int(str(told["offset"])) < _COUNT
            assert int(str(told["truncated_bytes"])) > 0

        await brokers.with_client(work)

    live(2, main)
