"""Tests of HOT_KEYS: traffic and hot keys of topics, and events about hot partitions."""

from random import Random

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import create_topic, fetch, produce, submit
from tests.broker.replication.three_brokers import TOPIC, ThreeBrokers, live
from tests.broker.world import World
from tests.simulation.transactions.requests import begin, commit, replica, stage
from tidelog.client.admin.hot_keys import HotKeys
from tidelog.client.client import Client
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.hot_keys import HotKeysRequest, PartitionHotKeys
from tidelog.wire.messages.transactions import StagedPart
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

LARGE = Random(1).randbytes(100_000)
NO_TOPIC = b"\x00" * 16


def keyed(*keys: bytes, value: bytes = b"v") -> bytearray:
    columns = Columns(len(keys), keys=list(keys), values=[value] * len(keys))
    return encode_batch(columns, first_timestamp_ms=1)


async def hot(
    client: RpcConnection, topic: bytes, *partitions: int, limit: int = 10
) -> list[PartitionHotKeys]:
    request = HotKeysRequest(topic, list(partitions), limit)
    return (await submit(client, api.HOT_KEYS, request).reply()).partitions


async def test_a_leader_names_keys_and_rates_of_its_partitions(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=2)
        batch = keyed(b"a", b"a", b"a", b"b")
        for _ in range(30):
            await produce(client, topic, batch)
            await fetch(client, topic)
            await world.pass_time(1)

        first, second, missing = await hot(client, topic, 0, 1, 2)

        assert [(each.key, each.key_bytes, round(each.share, 9)) for each in first.keys] == [
            (b"a", 1, 0.75),
            (b"b", 1, 0.25),
        ]
        assert first.is_sampled
        assert not first.is_hot
        assert first.received_records_per_s == pytest.approx(2, rel=0.1)
        assert first.received_bytes_per_s == pytest.approx(len(batch) / 2, rel=0.1)
        assert first.sent_bytes_per_s > first.received_bytes_per_s
        assert (second.bytes_per_s, second.keys) == (0, [])
        assert missing.error is not None
        assert missing.error.code == ErrorCode.UNKNOWN_PARTITION
        assert (await hot(client, topic, 0, limit=0))[0].keys == []
        (unknown,) = await hot(client, NO_TOPIC, 0)
        assert unknown.error is not None
        assert unknown.error.code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_broker_without_sampling_names_no_keys(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(hot_keys_sampling="off"), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, keyed(b"a"))
        await world.pass_time(10)

        (partition,) = await hot(client, topic, 0)

        assert (partition.is_sampled, partition.keys) == (False, [])
        assert partition.received_records_per_s > 0


async def test_records_of_transactions_are_sampled_when_they_are_committed(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        begun = await begin(client)
        piece = await stage(client, replica(broker, "staged@orders"), begun.number, b"a")
        assert (await hot(client, topic, 0))[0].keyless_share == 0

        await commit(client, begun.number, StagedPart(topic, 0, [piece]))

        assert (await hot(client, topic, 0))[0].keyless_share == 1


async def test_a_skewed_partition_is_hot_after_a_minute_and_cools_again(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=3)

        async def load(seconds: int, *partitions: int) -> None:
            for _ in range(seconds):
                for number in partitions:
                    await produce(client, topic, keyed(b"k", value=LARGE), partition=number)
                await world.pass_time(1)

        await load(60, 0, 1, 2)
        assert not world.told("partition_hot")
        await load(130, 1)
        assert [each["partition"] for each in world.told("partition_hot")] == [1]
        assert [each.is_hot for each in await hot(client, topic, 0, 1, 2)] == [False, True, False]
        (event,) = world.told("partition_hot")
        assert event["topic"] == "orders"
        assert event["broker_share"] == pytest.approx(1, abs=0.2)

        await load(160, 0, 1, 2)
        assert [each["partition"] for each in world.told("partition_cooled")] == [1]
        assert not any(each.is_hot for each in await hot(client, topic, 0, 1, 2))


async def test_a_topic_of_one_partition_is_never_hot(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        for _ in range(150):
            await produce(client, topic, keyed(b"k", value=LARGE))
            await world.pass_time(1)

        assert not world.told("partition_hot")


def test_a_leader_compares_with_partitions_that_other_brokers_lead() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> HotKeys:
            # Each broker leads one of them, and knows only its traffic.
            await client.admin.create_topic(TOPIC, 3, replication_factor=3)
            async with client.producer() as producer:
                for number in (0, 2):
                    await producer.send(TOPIC, b"v", key=b"k", partition=number)
                for _ in range(25):
                    await producer.send(TOPIC, 9 * LARGE, key=b"k", partition=1)
                    await trio.sleep(4)
            return await client.admin.hot_keys(TOPIC)

        found = await brokers.with_client(work)

        assert [each.is_hot for each in found.partitions] == [False, True, False]
        assert [each.partition for each in found.keys] == [1, 0, 2]
        assert found.keys[0].share > 0.9

    live(1, main)
