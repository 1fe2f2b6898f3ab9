"""Connections and metadata of a client, with real brokers that start and stop."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import ADDRESS, World
from tidelog.client.cluster.address import Address
from tidelog.client.cluster.background_tasks import BackgroundTasks
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.config import ClientConfig
from tidelog.wire.errors import ConnectError, UnknownTopicError
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.topics import CreateTopicRequest
from tidelog.wire.protocol import api

SEED = Address(*ADDRESS)


async def create_orders(cluster: ClusterClient) -> None:
    request = CreateTopicRequest("orders", 2, {})
    await cluster.call_any(api.CREATE_TOPIC, request, is_repeatable=False)


async def test_the_leaders_of_a_topic_are_known_after_a_lookup(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with world.broker(), trio.open_nursery() as nursery:
        cluster = ClusterClient([SEED], ClientConfig(), world.env, tasks=BackgroundTasks(nursery))
        await cluster.start()
        await create_orders(cluster)

        topic = await cluster.topic("orders")

        assert [part.leader_id for part in topic.partitions] == [1, 1]
        assert cluster.metadata.leader_of("orders", 1) == 1
        nursery.cancel_scope.cancel()


async def test_one_connection_is_shared_by_all_callers(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with world.broker(), trio.open_nursery() as nursery:
        cluster = ClusterClient([SEED], ClientConfig(), world.env, tasks=BackgroundTasks(nursery))
        await cluster.start()
        await cluster.any_connection()

        assert await cluster.connection_to(1) is await cluster.connection_to(1)
        assert cluster.connection_nowait(1) is await cluster.connection_to(1)
        nursery.cancel_scope.cancel()


async def test_an_unknown_topic_is_an_error_at_once(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with world.broker(), trio.open_nursery() as nursery:
        cluster = ClusterClient([SEED], ClientConfig(), world.env, tasks=BackgroundTasks(nursery))
        await cluster.start()

        with pytest.raises(UnknownTopicError):
            await cluster.topic("nope")
        nursery.cancel_scope.cancel()


async def test_start_fails_without_a_listening_broker(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with trio.open_nursery() as nursery:
        cluster = ClusterClient([SEED], ClientConfig(), world.env, tasks=BackgroundTasks(nursery))

        with pytest.raises(ConnectError, match="broker:8433"):
            await cluster.start()
        nursery.cancel_scope.cancel()


async def test_a_lost_connection_is_reestablished(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with world.broker(), trio.open_nursery() as nursery:
        cluster = ClusterClient([SEED], ClientConfig(), world.env, tasks=BackgroundTasks(nursery))
        await cluster.start()
        first = await cluster.any_connection()
        first.close()

        reply = await cluster.call_any(api.METADATA, MetadataRequest(None), is_repeatable=True)

        assert [broker.node_id for broker in reply.brokers] == [1]
        assert await cluster.any_connection() is not first
        nursery.cancel_scope.cancel()
