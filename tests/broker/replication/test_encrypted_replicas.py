"""Tests of encrypted topics on three brokers: same bytes, broken seals, brokers without the key."""

import pytest
import trio

from tests.broker.encryption.keyrings import MASTER, OTHER_MASTER, key_file
from tests.broker.replication.damage import segments
from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    ThreeBrokers,
    connected_as,
    host_of,
    live,
)
from tests.coordinator.raft_clients import until
from tests.simulation.machine.process import Process
from tests.wire.batches import reseal
from tidelog.client.client import Client
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE
from tidelog.wire.batch.record_batch import HEADER_SIZE, parse_header
from tidelog.wire.errors import DeliveryTimeoutError
from tidelog.wire.messages.keys import AlterKeysRequest, KeyAction
from tidelog.wire.protocol import api

SECRET = b"order that no disk may show %d"


async def make_topic(client: Client) -> None:
    await client.admin.create_topic(
        TOPIC, 1, replication_factor=3, config={"encryption": "on", "durability": "fsync"}
    )


async def send(client: Client, count: int, *, start: int = 0) -> list[bytes]:
    sent = [SECRET % number for number in range(start, start + count)]
    async with client.producer() as producer:
        for value in sent:
            await producer.send(TOPIC, value, partition=0)
    return sent


async def consume(client: Client, count: int) -> list[bytes]:
    values: list[bytes] = []
    async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            values.append(record.value or b"")
            if len(values) == count:
                break
    return values


def stored(brokers: ThreeBrokers, node_id: int) -> bytes:
    """Return the bytes of a replica, without what each replica writes for itself."""
    disk = brokers.machines[node_id].disk
    data = b"".join(disk.durable_bytes(path) for path in segments(brokers, node_id))
    found, position = bytearray(), SEGMENT_HEADER_SIZE
    while (header := parse_header(data, position)) is not None:
        batch = bytearray(data[position : position + header.size])
        batch[24:32] = bytes(8)
        found += reseal(batch)
        position += header.size
    return bytes(found)


def test_replicas_of_an_encrypted_topic_have_the_same_bytes() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            sent = await send(client, 30)
            await brokers.all_in_sync()
            await until(lambda: all(len(stored(brokers, node)) > 0 for node in NODES))
            await until(lambda: len({stored(brokers, node) for node in NODES}) == 1, 20)

            assert SECRET % 1 not in stored(brokers, 1)
            brokers.kill(await brokers.leads())
            assert await consume(client, 30) == sent, "another leader opens them"

        await brokers.with_client(work)

    live(1, main, key_files=dict.fromkeys(NODES, key_file(MASTER)))


def test_a_broken_seal_is_damage_and_is_repaired_from_a_replica() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            sent = await send(client, 30)
            await brokers.all_in_sync()
            leader = await brokers.leads()
            partition = brokers.partition(leader)
            assert partition is not None
            assert partition.cipher is not None
            file = partition.log.read(0, max_bytes=1, high_watermark=1)
            assert file is not None
            # Another payload under right checksums: only the seal shows it.
            batch = bytearray(file.read())
            batch[HEADER_SIZE + 40] ^= 1
            file.file.write_at(file.position, [bytes(reseal(batch))])

            assert await consume(client, 30) == sent

            await until(lambda: brokers.in_sync() == set(NODES), 20)
            await until(lambda: len({stored(brokers, node) for node in NODES}) == 1, 20)

        await brokers.with_client(work)

    live(2, main, key_files=dict.fromkeys(NODES, key_file(MASTER)))


def test_a_leader_without_the_key_truncates_nothing_and_followers_need_no_key() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            sent = await send(client, 10)
            await brokers.all_in_sync()
            for node_id in NODES:
                brokers.stop(node_id)
                await until(lambda node_id=node_id: brokers.machines[node_id].process is None)  # type: ignore[misc]
            for node_id in NODES:
                brokers.key_files[node_id] = key_file(OTHER_MASTER)
            brokers.start()
            await brokers.serve()
            await brokers.all_in_sync()
            await brokers.leads()
            with pytest.raises(DeliveryTimeoutError, match="master key"):
                async with client.producer(delivery_timeout=2) as producer:
                    await producer.send(TOPIC, b"late", partition=0)
            for node_id in NODES:
                partition = brokers.partition(node_id)
                assert partition is not None
                assert partition.log.log_end_offset == 10
                assert not partition.log.damage

            brokers.key_files |= dict.fromkeys(NODES, key_file(MASTER))
            sent += await send(client, 5, start=10)
            await brokers.all_in_sync()
            assert await consume(client, 15) == sent

        await brokers.with_client(work)

    live(3, main, key_files=dict.fromkeys(NODES, key_file(MASTER)))


def test_keys_are_deleted_when_no_leader_can_seal_and_acknowledge_by_them() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await send(client, 10)
            await brokers.all_in_sync()

        await brokers.with_client(work)
        controller = brokers.controller()
        cut_off = next(each for each in NODES if each != controller)
        others = [host_of(each) for each in NODES if each != cut_off]
        brokers.world.network.partition([host_of(cut_off)], others)
        could_lead: list[bool] = []

        async def shred(process: Process) -> None:
            async with connected_as(9, process, controller) as client:
                await client.ask(api.ALTER_KEYS, AlterKeysRequest(KeyAction.SHRED, TOPIC))
            lifecycle = vars(brokers.brokers[cut_off])["_lifecycle"]
            could_lead.append(lifecycle.may_lead())

        brokers.world.add_node("administrator").start(shred)
        await until(lambda: bool(could_lead), 60)
        assert could_lead == [False]

    live(4, main, key_files=dict.fromkeys(NODES, key_file(MASTER)))


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_records_sent_after_a_deletion_of_keys_are_kept(seed: int) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def shred(process: Process) -> None:
            async with connected_as(9, process, brokers.controller()) as administrator:
                await administrator.ask(api.ALTER_KEYS, AlterKeysRequest(KeyAction.SHRED, TOPIC))
            answered.set()

        async def work(client: Client) -> None:
            await make_topic(client)
            await send(client, 1)
            await brokers.all_in_sync()
            # The leader has old metadata, and its follower replicates.
            controller = brokers.controller()
            replicas = [node for node in NODES if node != controller]
            await brokers.reassign(replicas)
            await until(lambda: brokers.leader() != controller)
            await until(lambda: brokers.in_sync() == set(replicas), 60)
            leader = host_of(await brokers.leads())
            heal = brokers.world.network.partition([leader], [host_of(controller)])
            brokers.world.add_node("administrator").start(shred)
            number, sent_after = 1, list[bytes]()
            async with client.producer() as producer:
                while len(sent_after) < 20:
                    is_after, value = answered.is_set(), SECRET % number
                    await producer.send(TOPIC, value, partition=0)
                    sent_after += [value] if is_after else []
                    number += 1
            heal()
            await until(lambda: all(key_ids(brokers, each) == [2] for each in NODES), 20)

            with trio.fail_after(20):
                assert await consume_until(client, sent_after[-1]) >= set(sent_after)

        answered = trio.Event()
        await brokers.with_client(work)

    live(seed, main, key_files=dict.fromkeys(NODES, key_file(MASTER)))


def key_ids(brokers: ThreeBrokers, node_id: int) -> list[int]:
    """Return the data keys of the topic that a broker knows."""
    state = brokers.state(node_id)
    return list(state.security.data_keys(state.catalog.topic(TOPIC).topic_id))


async def consume_until(client: Client, last: bytes) -> set[bytes]:
    """Return the values up to one."""
    found: set[bytes] = set()
    async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            found.add(record.value or b"")
            if record.value == last:
                break
    return found
