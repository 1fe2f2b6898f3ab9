"""Tests of the state of a new leader: producers, and offsets before it has caught up."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from typing import Final

import pytest
import trio

from tests.broker.logs import TOPIC_ID, append, config_of, flush, open_partition_log
from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    ThreeBrokers,
    connected,
    host_of,
    live,
    make_topic,
    produce,
)
from tests.coordinator.raft_clients import until
from tests.simulation.machine.faulty_disk import FaultyDisk
from tests.simulation.machine.process import Process
from tidelog.broker.handlers.list_offsets import readable_offsets
from tidelog.broker.partitions.offset_search import partition_offsets
from tidelog.broker.partitions.partition import Partition
from tidelog.client.client import Client
from tidelog.client.cluster.list_offsets import offset_at
from tidelog.isr.follower_progress import FollowerReport
from tidelog.isr.followers import Followers
from tidelog.isr.replica_set import BrokerStatus, BrokerView, ReplicaSet
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import LeaderNotAvailableError, OutOfOrderSequenceError, from_wire
from tidelog.wire.messages.produce import Acks, PartitionAppended, PartitionBatch, ProduceRequest
from tidelog.wire.protocol import api

PRODUCER_ID: Final = 4711


def batch(sequence: int) -> bytes:
    """Return one record of an idempotent producer."""
    return bytes(
        encode_batch(
            Columns(1, values=[b"value %d" % sequence]),
            first_timestamp_ms=1_700_000_000_000,
            codec=Codec.NONE,
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=sequence,
        )
    )


async def send(brokers: ThreeBrokers, *sequences: int) -> list[PartitionAppended]:
    """Append records at the leader one by one, each with acks=all."""
    leader_id = await brokers.leads()
    topic_id = brokers.state(leader_id).catalog.topic(TOPIC).topic_id
    results: list[PartitionAppended] = []
    done = trio.Event()

    async def run(process: Process) -> None:
        async with connected(process, leader_id) as connection:
            for sequence in sequences:
                data = batch(sequence)
                entry = PartitionBatch(topic_id, 0, len(data))
                request = ProduceRequest(int(Acks.ALL), 10_000, [entry])
                appended = await connection.call(
                    api.PRODUCE, request, take=lambda reply, _: reply.results, attachment=[data]
                )
                results.extend(appended)
        done.set()

    brokers.world.add_node(f"producer{len(brokers.world.nodes)}").start(run)
    await done.wait()
    return results


def test_records_that_a_lost_leader_never_acknowledged_are_there_once() -> None:
    """The producer sends it again, and gets its offset."""

    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await produce(client, 5)
            leader_id = await brokers.leads()
            for node in brokers.followers():
                brokers.machines[node].stall_disk(3)

            async def kill_the_leader() -> None:
                await until(lambda: {brokers.end_of(node) for node in NODES} == {6})
                assert brokers.high_watermark() == 5, "no producer had a reply yet"
                brokers.kill(leader_id)

            async with trio.open_nursery() as nursery, client.producer() as producer:
                nursery.start_soon(kill_the_leader)
                receipt = await producer.send(TOPIC, b"once")
            assert receipt.offset == 5
            assert await brokers.leads() != leader_id
            brokers.start(leader_id)

        await brokers.with_client(work)

        await brokers.all_in_sync()
        for node in NODES:
            assert list(brokers.records(node).values())[5:] == [b"once"]

    live(1, main)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_next_leader_knows_the_sequences_of_producers(is_restarted: bool) -> None:
    """Also after a restart, from its checkpoint."""

    async def main(brokers: ThreeBrokers) -> None:
        await brokers.with_client(make_topic)
        assert [result.base_offset for result in await send(brokers, 0, 1, 2)] == [0, 1, 2]
        await brokers.all_in_sync()
        leader_id = await brokers.leads()
        for node in brokers.followers() if is_restarted else ():
            brokers.stop(node)
            await until(lambda node=node: brokers.machines[node].process is None)  # type: ignore[misc]
            brokers.start(node)
            await until(lambda: brokers.in_sync() == set(NODES), 60)

        brokers.kill(leader_id)
        assert await brokers.leads(other_than=leader_id) != leader_id

        again, gap, following = await send(brokers, 2, 7, 3)
        assert (again.error, again.base_offset) == (None, 2)
        assert gap.error is not None
        error = from_wire(gap.error)
        assert isinstance(error, OutOfOrderSequenceError)
        assert error.expected_sequence == 3
        assert (following.error, following.base_offset) == (None, 3)
        assert len(brokers.records(await brokers.leads())) == 4

    live(2, main)


def unheard(event: str, **fields: object) -> None:
    """Ignore an event."""


def no_facts(node_id: int) -> BrokerStatus | None:
    del node_id
    return None


@pytest.mark.invariant("I47")
def test_a_new_leader_does_not_return_the_latest_offset_before_it_is_known() -> None:
    """I47: elected is not ready; followers first report records acknowledged earlier."""
    config = config_of("fsync")
    log = open_partition_log(FaultyDisk(), config)
    partition = Partition(TOPIC_ID, 0, log, topic="orders", config=config, probe=unheard)
    append(log, b"a")
    flush(log)
    three = ReplicaSet((1, 2, 3), (1, 2), 0, 2)
    view = BrokerView(1, no_facts)
    partition.follow(2, 6)
    partition.lead(7, Followers(three, view, epoch_start_offset=1, now_ms=0))
    leader = partition.leader
    assert leader is not None

    with pytest.raises(LeaderNotAvailableError, match="does not know the high watermark yet"):
        offset_at("latest", partition_offsets(partition))
    assert readable_offsets(partition, with_size=False) is None

    leader.follower_reported(FollowerReport(2, 12, 1, 1), now_ms=0)
    assert offset_at("latest", partition_offsets(partition)).offset == 1
    assert readable_offsets(partition, with_size=False) == (0, 1, 0)


@pytest.mark.invariant("I64")
def test_a_recreated_topic_has_no_records_of_the_old_one_on_any_replica() -> None:
    """I64: also on a broker that was down meanwhile, with all files of the old one."""

    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await produce(client, 20)
            await brokers.all_in_sync()
            away = brokers.followers()[0]
            brokers.kill(away)
            await until(lambda: away not in brokers.in_sync())
            await client.admin.delete_topic(TOPIC)
            await make_topic(client)
            await produce(client, 5, start=100)
            brokers.start(away)

        await brokers.with_client(work)

        await brokers.all_in_sync()
        for node in NODES:
            values = [b"order %d" % number for number in range(100, 105)]
            assert list(brokers.records(node).values()) == values
            assert len(brokers.machines[node].disk.list_directory("topics")) == 1

    live(4, main)


@pytest.mark.invariant("I65")
def test_a_start_without_contact_to_the_cluster_removes_no_files() -> None:
    """I65: the broker may have lost its metadata; only the cluster decides about deletions."""

    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await client.admin.create_topic(TOPIC, partitions=1, replication_factor=2)
            await produce(client, 5)

        await brokers.with_client(work)
        state = brokers.state(1)
        topic_id = state.catalog.topic(TOPIC).topic_id
        replicas = state.partitions(topic_id)[0].replicas
        (newcomer,) = {*NODES} - {*replicas}
        await brokers.reassign([newcomer, replicas[0]])
        await until(lambda: newcomer in brokers.in_sync(), 60)
        await until(lambda: brokers.end_of(newcomer) == 5, 60)
        brokers.cut_power(newcomer)

        others = [host_of(node) for node in NODES if node != newcomer]
        heal = brokers.world.network.partition([host_of(newcomer)], others)
        brokers.start(newcomer)
        await trio.sleep(20)
        disk = brokers.machines[newcomer].disk
        (directory,) = disk.list_directory("topics")
        assert disk.list_directory(f"topics/{directory}/0")

        heal()
        await until(lambda: newcomer in brokers.in_sync(), 60)
        assert list(brokers.records(newcomer)) == list(range(5))

    live(5, main)
