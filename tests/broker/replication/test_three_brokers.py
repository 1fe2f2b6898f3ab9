"""Tests of replication and failover on three brokers: no acknowledged record is lost."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import trio

from tests.broker.replication.three_brokers import (
    NODES,
    PORT,
    TOPIC,
    ThreeBrokers,
    host_of,
    live,
    make_topic,
    produce,
)
from tests.coordinator.raft_clients import until
from tests.simulation.machine.process import Process
from tests.simulation.three_brokers.runs import Writer
from tidelog.client.client import Client
from tidelog.wire.messages.metadata import MetadataReply, MetadataRequest
from tidelog.wire.messages.topics import CreateTopicRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import open_rpc


async def while_writing(
    brokers: ThreeBrokers, happen: Callable[[Writer], Awaitable[None]]
) -> Writer:
    """Cause an event during writes."""
    writer = Writer()

    async def work(client: Client) -> None:
        await make_topic(client)
        await writer.run(client)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(brokers.with_client, work)
        await until(lambda: len(writer.acknowledged) >= 20)
        await happen(writer)
        writer.should_stop = True
    return writer


async def write_more(writer: Writer, count: int = 20) -> None:
    so_far = len(writer.acknowledged)
    await until(lambda: len(writer.acknowledged) >= so_far + count, 60)


def test_acknowledged_records_are_on_every_replica() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> dict[int, bytes]:
            await make_topic(client)
            return await produce(client, 50)

        acknowledged = await brokers.with_client(work)

        assert len(acknowledged) == 50
        await brokers.check(acknowledged)

    live(1, main)


@pytest.mark.parametrize("seed", range(3))
def test_a_new_leader_has_all_acknowledged_records_after_a_kill(
    seed: int,
) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def happen(writer: Writer) -> None:
            leader = await brokers.leads()
            brokers.kill(leader)
            await brokers.leads(other_than=leader)
            await write_more(writer)
            brokers.start(leader)
            await until(lambda: brokers.in_sync() == set(NODES), 60)

        writer = await while_writing(brokers, happen)
        await brokers.check(writer.of(0))

    live(seed, main)


def test_a_controlled_shutdown_hands_over_leadership_at_once() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def happen(writer: Writer) -> None:
            leader = await brokers.leads()
            before = trio.current_time()
            brokers.stop(leader)
            await brokers.leads(other_than=leader)
            assert trio.current_time() - before < 1
            await write_more(writer)
            assert trio.current_time() - before < 2
            await until(lambda: brokers.machines[leader].process is None)
            brokers.start(leader)

        writer = await while_writing(brokers, happen)
        await brokers.check(writer.of(0))

    live(2, main)


@pytest.mark.invariant("I46")
def test_a_leader_paused_during_its_replacement_acknowledges_nothing_more() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def happen(writer: Writer) -> None:
            leader = await brokers.leads()
            brokers.machines[leader].pause(25)
            await until(lambda: brokers.leader() not in {None, leader}, 20)
            await write_more(writer, 50)

        writer = await while_writing(brokers, happen)
        await brokers.check(writer.of(0))

    live(3, main)


def test_a_follower_catches_up_after_a_power_cut() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def happen(writer: Writer) -> None:
            await brokers.leads()
            follower = brokers.followers()[0]
            brokers.cut_power(follower)
            await write_more(writer, 50)
            assert brokers.in_sync() == {*NODES} - {follower}
            brokers.start(follower)
            await until(lambda: brokers.in_sync() == set(NODES), 60)

        writer = await while_writing(brokers, happen)
        await brokers.check(writer.of(0))

    live(4, main)


@pytest.mark.invariant("I35")
def test_acknowledged_records_survive_a_power_cut_of_all_brokers() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def happen(writer: Writer) -> None:
            brokers.cut_power(*NODES)
            brokers.start()
            await write_more(writer)

        writer = await while_writing(brokers, happen)
        await brokers.check(writer.of(0))

    live(5, main)


async def make_pair(brokers: ThreeBrokers, client: Client) -> tuple[int, int]:
    """Create the topic with two replicas and 20 records; return the leader and the follower."""
    await client.admin.create_topic(TOPIC, 1, replication_factor=2)
    await produce(client, 20)
    leader = await brokers.leads()
    await until(lambda: len(brokers.in_sync()) == 2 and brokers.high_watermark() == 20)
    (follower,) = brokers.in_sync() - {leader}
    return leader, follower


async def delete_all_and_cut_power(brokers: ThreeBrokers, client: Client) -> None:
    """Delete all records, cut the power of all brokers and start them."""
    await client.admin.delete_records(TOPIC, 0, None)
    brokers.cut_power(*brokers.brokers)
    brokers.start()
    await brokers.serve()


@pytest.mark.invariant("I35")
def test_offsets_of_deleted_records_are_not_assigned_again_after_a_power_cut() -> None:
    """A replica that has missed records does not lead, although no other has records any more."""

    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            leader, late = await make_pair(brokers, client)
            brokers.cut_power(late)
            await until(lambda: brokers.in_sync() == {leader}, 60)
            await produce(client, 10, start=20)

            await delete_all_and_cut_power(brokers, client)

            assert [*await produce(client, 1, start=30)] == [30]

        await brokers.with_client(work)

    live(6, main)


@pytest.mark.invariant("I35")
def test_uncommitted_records_do_not_replace_deleted_ones_after_a_power_cut() -> None:
    """The other replica has deleted its records, and knows that they were of a later epoch."""

    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            deposed, follower = await make_pair(brokers, client)
            heal = brokers.world.network.partition([host_of(deposed)], [host_of(follower)])
            async with client.producer(acks=1) as producer:
                for number in range(15):
                    await producer.send(TOPIC, b"uncommitted %d" % number, partition=0)
            assert (brokers.end_of(deposed), brokers.end_of(follower)) == (35, 20)
            brokers.cut_power(deposed)
            heal()
            await brokers.leads(other_than=deposed)
            await produce(client, 10, start=20)

            await delete_all_and_cut_power(brokers, client)

            assert [*await produce(client, 1, start=30)] == [30]

        await brokers.with_client(work)

    live(7, main)


def test_committed_records_can_be_read_after_a_start_although_none_can_be_written() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await client.admin.create_topic(
                TOPIC, partitions=1, replication_factor=3, config={"min_insync_replicas": 3}
            )
            await until(lambda: brokers.in_sync() == set(NODES))
            await produce(client, 20)
            for node in NODES:
                brokers.stop(node)
                await until(lambda node=node: brokers.machines[node].process is None)  # type: ignore[misc]
            brokers.start(1, 2)
            await brokers.leads()
            await until(lambda: brokers.high_watermark() == 20)
            assert 3 not in brokers.in_sync()

        await brokers.with_client(work)

    live(6, main)


def test_a_broker_that_is_behind_knows_a_topic_whose_creation_was_answered() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        controller = brokers.controller()
        behind = next(node for node in NODES if node != controller)
        knew: list[bool] = []
        replies: list[MetadataReply] = []

        async def create_and_ask(process: Process) -> None:
            network = process.env.network
            async with AsyncExitStack() as stack:
                asked = [
                    await stack.enter_async_context(
                        open_rpc(network, host_of(node), PORT, client_id="", client_version="")
                    )
                    for node in (controller, behind)
                ]
                heal = brokers.world.network.partition([host_of(controller)], [host_of(behind)])
                await asked[0].ask(api.CREATE_TOPIC, CreateTopicRequest(TOPIC, 1, {}))
                heal()
                knew.append(brokers.knows(behind, TOPIC))
                replies.append(await asked[1].ask(api.METADATA, MetadataRequest([TOPIC])))

        await brokers.world.add_node("client").start(create_and_ask).ended.wait()

        assert knew == [False], "otherwise this test shows nothing"
        assert replies[0].topics[0].error is None

    live(1, main)
