"""Tests of transactions on encrypted topics: sealed while staged, and committed after a crash."""

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import create_topic, fetch_all
from tests.broker.encryption.keyrings import MASTER, key_file
from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers, live
from tests.broker.world import World
from tests.coordinator.raft_clients import until
from tests.simulation.machine.disk_contents import contents
from tests.simulation.transactions.requests import begin, commit, replica, stage
from tidelog.client.client import Client
from tidelog.wire.errors import KeyUnavailableError
from tidelog.wire.messages.transactions import StagedPart

STAGED = b"a staged record that no disk may show"


def stored(world: World) -> bytes:
    return b"".join(data or b"" for data in contents(world.disk, "").values())


async def test_a_transaction_of_an_encrypted_topic_is_committed_after_a_crash(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    world.key_file = key_file(MASTER)
    async with world.doomed_broker() as broker, world.client() as client:
        await world.pass_time(3)
        topic_id = await create_topic(client, encryption="on")
        number = (await begin(client)).number
        await world.pass_time(1)
        piece = await stage(client, replica(broker, "staged@orders"), number, STAGED, b"b")
    world = world.after_crash()
    assert STAGED not in stored(world)
    world.key_file = ""
    async with world.broker() as broker, world.client() as client:
        with pytest.raises(KeyUnavailableError):
            await stage(client, replica(broker, "staged@orders"), number, b"c", sequence=2)
        world.key_file = key_file(MASTER)
        await world.pass_time(6)

        await commit(client, (await begin(client)).number, StagedPart(topic_id, 0, [piece]))

        assert [each.value for each in await fetch_all(client, topic_id)] == [STAGED, b"b"]
        while replica(broker, "staged@orders").log.log_start_offset < 2:
            await world.pass_time(0.1)
    assert STAGED not in stored(world)


def test_a_commit_on_three_brokers_survives_the_leader_and_is_read_from_another() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            config = {"encryption": "on"}
            await client.admin.create_topic(TOPIC, 1, replication_factor=3, config=config)
            transaction = client.transaction("job", 0)
            async with transaction.task() as staging:
                for number in range(20):
                    await staging.send_many(TOPIC, [STAGED + b" %d" % number], partition=0)
            brokers.kill(await brokers.leads())
            await transaction.commit([staging.result])
            async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
                end = await consumer.end_offsets()
                found = [record.value async for record in consumer.records(end)]
            assert found == [STAGED + b" %d" % number for number in range(20)]

        await brokers.with_client(work)
        for node_id in NODES:
            files = contents(brokers.machines[node_id].disk, "").values()
            assert not any(STAGED in (data or b"") for data in files)

    live(5, main, key_files=dict.fromkeys(NODES, key_file(MASTER)))


def test_keys_are_deleted_directly_after_a_commit() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            config = {"encryption": "on"}
            await client.admin.create_topic(TOPIC, 1, replication_factor=3, config=config)
            async with client.transaction("job", 0).task() as staging:
                await staging.send_many(TOPIC, [STAGED], partition=0)
            await client.transaction("job", 0).commit([staging.result])

            changed = await client.security.shred_data_keys(TOPIC)

            assert [(each.topic, each.key_ids) for each in changed] == [
                (TOPIC, [1]),
                (f"staged@{TOPIC}", [1]),
            ]

        await brokers.with_client(work)

    live(7, main, key_files=dict.fromkeys(NODES, key_file(MASTER)))


def test_staged_records_of_an_encrypted_topic_are_deleted_when_all_brokers_restart() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            config = {"encryption": "on"}
            await client.admin.create_topic(TOPIC, 1, replication_factor=3, config=config)
            async with client.transaction("job", 0).task() as staging:
                await staging.send_many(TOPIC, [STAGED], partition=0)
            brokers.cut_power(*NODES)
            brokers.start()
            await brokers.serve()
            await client.transaction("job", 0).commit([staging.result])
            async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
                assert (await anext(aiter(consumer))).value == STAGED

        await brokers.with_client(work)

        def is_empty() -> bool:
            leader = brokers.leader(f"staged@{TOPIC}")
            staged = None if leader is None else brokers.partition(leader, f"staged@{TOPIC}")
            return staged is not None and staged.log.log_start_offset == staged.log.log_end_offset

        await until(is_empty, 60)

    live(6, main, key_files=dict.fromkeys(NODES, key_file(MASTER)))
