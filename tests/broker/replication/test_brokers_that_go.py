"""Tests of drained, replaced and unregistered brokers: no acknowledged record is lost."""

# pyright: reportPrivateUsage=false

import pytest
import trio

from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    Acknowledged,
    ThreeBrokers,
    live,
    produce,
)
from tests.coordinator.raft_clients import until
from tests.simulation.three_brokers.runs import Writer
from tidelog.client.client import Client

PARTITIONS = 6


def load_of(brokers: ThreeBrokers, node_id: int, *, asked: int) -> int:
    """Return the number of replicas of a broker, in the metadata of another one."""
    return brokers.state(asked).index.load(node_id).replica_count


def is_whole(brokers: ThreeBrokers, asked: int) -> bool:
    """Return whether no reassignment is under way and all replicas are in sync, for one broker."""
    state = brokers.state(asked)
    topic_id = state.catalog.topic(TOPIC).topic_id
    return all(
        not each.is_reassigning and sorted(each.in_sync_replicas) == sorted(each.replicas)
        for each in state.partitions(topic_id)
    )


async def write_to_all(client: Client, start: int) -> dict[int, Acknowledged]:
    """Write to every partition; return the acknowledged records, by partition."""
    return {
        number: await produce(client, 20, start=start + 100 * number, partition=number)
        for number in range(PARTITIONS)
    }


def check(brokers: ThreeBrokers, node_ids: list[int], written: dict[int, Acknowledged]) -> None:
    """Check that two of these brokers have all acknowledged records of each partition."""
    for number, acknowledged in written.items():
        there = [node for node in node_ids if brokers.partition(node, number=number) is not None]
        assert len(there) == 2
        for node in there:
            records = brokers.records(node, number)
            assert {at: records.get(at) for at in acknowledged} == acknowledged


@pytest.mark.invariant("I62")
def test_a_drained_broker_serves_while_it_is_emptied_and_gets_no_new_replicas() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))

        async def work(client: Client) -> None:
            await client.admin.create_topic(TOPIC, PARTITIONS, replication_factor=2)
            written = await write_to_all(client, 0)

            moved = await client.admin.drain(3)

            assert len(moved) == 4
            more = await write_to_all(client, 10_000)
            await until(lambda: load_of(brokers, 3, asked=1) == 0, 30)
            await until(lambda: is_whole(brokers, 1), 30)
            for number in range(PARTITIONS):
                written[number] |= more[number]
            await until(
                lambda: all(brokers.partition(3, number=each) is None for each in range(PARTITIONS))
            )
            check(brokers, [1, 2], written)
            await client.admin.create_topic("later", 3)
            assert load_of(brokers, 3, asked=1) == 0
            await client.admin.end_drain(3)
            # The next request may reach another broker than the drain did.
            await until(
                lambda: not any(3 in brokers.state(node).drained_node_ids for node in (1, 2, 3))
            )
            assert await client.admin.balance()

        await brokers.with_client(work)

    live(1, main)


def test_the_replicas_of_a_lost_broker_move_to_its_replacement_and_it_is_unregistered() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))

        async def work(client: Client) -> None:
            await client.admin.create_topic(TOPIC, PARTITIONS, replication_factor=2)
            written = await write_to_all(client, 0)
            lost = 2
            brokers.kill(lost)
            await until(lambda: brokers.state(1).brokers[lost].is_fenced, 30)

            await client.admin.replace_broker(lost, 3)
            await until(lambda: load_of(brokers, lost, asked=1) == 0, 30)
            await until(lambda: is_whole(brokers, 1), 30)
            assert await client.admin.unregister_broker(lost)

            more = await write_to_all(client, 10_000)
            for number in range(PARTITIONS):
                written[number] |= more[number]
            check(brokers, [1, 3], written)
            described = await client.admin.describe_cluster()
            assert [node.node_id for node in described.nodes] == [1, 3]
            await client.admin.create_topic("later", 3)

        await brokers.with_client(work)

        # An unregistered broker that returns is a new one.
        brokers.start(2)
        await until(lambda: brokers.are_live(3), 60)
        assert load_of(brokers, 2, asked=1) == 0
        await trio.sleep(1)
        assert set(brokers.brokers) == set(NODES)

    live(2, main)


def test_a_log_marked_as_clean_by_a_stop_is_completely_synced() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))
        writer, behind, is_marked = Writer(), list[str](), False

        async def work(client: Client) -> None:
            nonlocal is_marked
            config = {"durability": "replicated"}
            await client.admin.create_topic(TOPIC, 1, replication_factor=3, config=config)
            await brokers.all_in_sync()
            leaving = brokers.followers()[0]
            machine, replica = brokers.machines[leaving], brokers.partition(leaving)
            assert replica is not None

            def look(operation: str, path: str) -> None:
                nonlocal is_marked
                is_marked |= operation == "create" and path.startswith("clean-shutdown")
                if is_marked and replica.log.durable_end_offset < replica.log.log_end_offset:
                    behind.append(f"{operation} {path}")

            machine.disk_watcher = look
            async with trio.open_nursery() as nursery:
                nursery.start_soon(writer.run, client)
                await until(lambda: len(writer.acknowledged) > 10)
                machine.disk_speed.sync_mean_s = 0.05  # Much happens during its last syncs.
                brokers.stop(leaving)
                await until(lambda: machine.process is None)
                writer.should_stop = True

        await brokers.with_client(work)
        assert is_marked
        assert not behind

    live(4, main)


def test_a_replica_may_join_the_isr_while_its_broker_is_not_fenced() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))
        context = brokers.brokers[1]._context
        assert context is not None
        facts = context.status_of(2)
        assert facts is not None
        assert facts.may_join
        assert context.status_of(7) is None

        brokers.kill(2)

        await until(lambda: context.status_of(2) == (facts.broker_epoch, False))

    live(1, main)


def test_the_identity_of_a_replica_is_that_of_the_metadata() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        context = brokers.brokers[1]._context
        assert context is not None

        identity = context.own_identity()

        assert identity is not None
        assert identity.node_id == 1
        known = brokers.state(2).brokers[1]
        assert (identity.broker_epoch, identity.incarnation_id) == (
            known.broker_epoch,
            known.incarnation_id,
        )
        context.check_identity(identity)

    live(2, main)
