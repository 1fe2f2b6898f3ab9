"""Tests of HELLO, METADATA and INIT_PRODUCER."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic, delete_topic, produce
from tests.broker.world import ADDRESS, World, settle
from tests.coordinator.metadata.clusters import Cluster
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.handlers.metadata import MetadataHandler
from tidelog.wire.errors import (
    ErrorCode,
    FencedProducerError,
    InvalidRequestError,
    LeaderNotAvailableError,
    from_wire,
)
from tidelog.wire.messages.metadata import BrokerAddress, MetadataRequest
from tidelog.wire.messages.produce import InitProducerRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection


async def new_producer_id(client: RpcConnection) -> int:
    reply = await client.ask(api.INIT_PRODUCER, InitProducerRequest())
    assert reply.producer_epoch == 0
    return reply.producer_id


async def test_hello_returns_the_identity_and_api_versions_of_the_broker(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(node_id=7) as broker, world.client() as client:
        hello = client.hello

        assert hello is not None
        assert (hello.node_id, hello.cluster_id) == (7, broker.cluster_id)
        assert (hello.max_frame_bytes, hello.max_in_flight_requests_per_connection) == (
            16 << 20,
            4096,
        )
        assert {offered.api_key for offered in hello.apis} == set(api.ApiKey)


async def test_the_cluster_id_survives_restarts(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    seen: set[str] = set()
    for _ in range(3):
        async with world.broker() as broker:
            seen.add(broker.cluster_id)

    assert len(seen) == 1


async def test_metadata_returns_topics_and_leaders(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(node_id=7), world.client() as client:
        topic = await create_topic(client, "orders", 2)
        await create_topic(client, "another")

        everything = await client.ask(api.METADATA, MetadataRequest(None))
        some = await client.ask(api.METADATA, MetadataRequest(["nope", "orders"]))
        nothing = await client.ask(api.METADATA, MetadataRequest([]))

        assert [found.name for found in everything.topics] == ["another", "orders"]
        assert everything.brokers == [BrokerAddress(7, *ADDRESS)]
        assert everything.controller_id == 7
        missing, orders = some.topics
        assert missing.error is not None
        assert missing.error.code == ErrorCode.UNKNOWN_TOPIC
        assert (orders.topic_id, orders.error) == (topic, None)
        assert [(each.partition, each.leader_id) for each in orders.partitions] == [(0, 7), (1, 7)]
        assert nothing.topics == []


async def test_metadata_name_the_format_of_batches_for_clients_of_this_version(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        cluster = broker._cluster  # pyright: ignore[reportPrivateUsage]
        assert cluster is not None
        while not cluster.metadata.state.feature_level:
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(0.1)

        reply = await client.ask(api.METADATA, MetadataRequest([]))
        versions = client._core._versions  # pyright: ignore[reportPrivateUsage]
        versions[api.ApiKey.METADATA] = 3
        older = await client.ask(api.METADATA, MetadataRequest([]))

        assert (reply.batch_format, older.batch_format) == (2, 1)


async def test_metadata_has_the_advertised_address(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(advertised="public.example:9000"), world.client() as client:
        reply = await client.ask(api.METADATA, MetadataRequest(None))

        assert reply.brokers == [BrokerAddress(1, "public.example", 9000)]


async def test_a_deleted_topic_is_not_in_the_metadata(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client)
        await delete_topic(client)

        assert (await client.ask(api.METADATA, MetadataRequest(None))).topics == []


async def test_no_producer_id_is_assigned_twice(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    given: list[int] = []
    for _ in range(3):
        async with world.broker(), world.client() as client:
            given += [await new_producer_id(client) for _ in range(3)]
        async with world.doomed_broker(), world.client() as client:
            given.append(await new_producer_id(client))
        world = world.after_power_cut(len(given))

    assert len(set(given)) == len(given) == 12
    assert min(given) >= 1


async def test_concurrent_producers_get_distinct_ids(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(max_in_flight_requests_per_connection=5000), world.client() as client:
        pending = [new_producer_id(client) for _ in range(2500)]
        synced_before = len(world.disk.changes)

        given = [await each for each in pending]

        assert len(set(given)) == 2500
        # Three blocks of a thousand, not a sync for each.
        assert len(world.disk.changes) - synced_before < 30


async def test_the_next_epoch_of_a_producer_fences_the_previous_one(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        producer_id = await new_producer_id(client)
        await produce(client, topic, batch_of(b"a", producer_id=producer_id))

        reply = await client.ask(api.INIT_PRODUCER, InitProducerRequest(producer_id, 0))

        assert (reply.producer_id, reply.producer_epoch) == (producer_id, 1)
        await produce(client, topic, batch_of(b"b", producer_id=producer_id, epoch=1))
        with pytest.raises(FencedProducerError):
            await produce(client, topic, batch_of(b"c", producer_id=producer_id, sequence=1))


async def test_a_producer_at_its_last_epoch_gets_another_id(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        producer_id = await new_producer_id(client)

        reply = await client.ask(api.INIT_PRODUCER, InitProducerRequest(producer_id, (1 << 32) - 1))

        assert reply.producer_epoch == 0
        assert reply.producer_id != producer_id


@pytest.mark.parametrize("producer_id", [1001, 1 << 40, (1 << 63) - 1])
async def test_an_unassigned_producer_id_has_no_next_epoch(
    producer_id: int, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await new_producer_id(client)

        with pytest.raises(
            InvalidRequestError, match=f"producer id {producer_id} was never assigned"
        ):
            await client.ask(api.INIT_PRODUCER, InitProducerRequest(producer_id, 0))


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (1, -1), (1, 1 << 32), (1 << 64, 0)])
async def test_impossible_producer_identities_are_refused(
    producer_id: int, epoch: int, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        try:
            request = client.ask(api.INIT_PRODUCER, InitProducerRequest(producer_id, epoch))
            with pytest.raises(InvalidRequestError):
                await request
        except OverflowError:
            pass  # The client cannot even encode it.
    await settle()


async def test_an_unknown_topic_is_retriable_when_no_controller_can_be_asked() -> None:
    raft = SimpleNamespace(is_active_leader=False, leader_id=None, cluster_id="a cluster")
    state = Cluster(1).state
    cluster: Any = SimpleNamespace(raft=raft, metadata=SimpleNamespace(state=state))
    partitions: Any = None
    session = MetadataHandler(BrokerConfig(), cluster, partitions)
    request = MetadataRequest(["made a moment ago"])

    assert session.may_be_behind(request)
    (topic,) = (await session.describe_after_asking(request, local=("h", 1), version=4)).topics

    assert topic.error is not None
    error = from_wire(topic.error)
    assert isinstance(error, LeaderNotAvailableError)
    assert "may be behind: no node leads the cluster" in str(error)
