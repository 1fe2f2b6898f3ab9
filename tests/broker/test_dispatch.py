"""Tests of dispatch from requests to handlers; every API has a handler."""


# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from typing import cast, final

import msgspec
import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic, produce, submit
from tests.broker.queues.queue_requests import create_queue, receive, states
from tests.broker.world import World
from tests.wire.samples import EXCHANGES, Exchange
from tidelog.wire.errors import ConnectionLostError, NotANodeError, UnexpectedServerError
from tidelog.wire.messages.handshake import HelloRequest, ProveNodeRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import InitProducerRequest
from tidelog.wire.messages.topics import DescribeTopicsRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import APIS, ApiKey


async def test_a_slow_request_does_not_block_later_ones(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client)
        world.work.hold_work()
        slow = submit(client, api.INIT_PRODUCER, InitProducerRequest())

        await submit(client, api.METADATA, MetadataRequest(None)).reply()
        await submit(client, api.DESCRIBE_TOPICS, DescribeTopicsRequest(None)).reply()
        await submit(client, api.HELLO, HelloRequest("again", "0")).reply()

        assert not slow.is_answered
        world.work.let_all()
        assert (await slow.reply()).producer_id >= 1


async def test_a_defect_in_a_slow_request_is_answered_and_affects_no_other_request(
    mock_clock: MockClock, defects: list[str]
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        world.clock.defect = NoSuchLuckError()

        with pytest.raises(UnexpectedServerError, match="NoSuchLuckError"):
            await create_topic(client, "other")

        world.clock.defect = None
        assert "NoSuchLuckError" in defects.pop()
        await produce(client, topic, batch_of(b"a"))
        await create_topic(client, "other")


@final
class NoSuchLuckError(Exception):
    """A defect."""


async def test_every_offered_api_is_served(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        assert client.hello is not None
        offered = {each.api_key: each for each in client.hello.apis}

        assert set(offered) == set(ApiKey)
        dispatcher = broker._dispatcher
        served_keys = {**dispatcher._of_all, **dispatcher._of_nodes, **dispatcher._of_clients}
        assert set(served_keys) == set(ApiKey)
        spoken = {served.key: (served.min_version, served.max_version) for served in APIS}
        assert spoken == {
            key: (each.min_version, each.max_version) for key, each in offered.items()
        }


OF_NODES = [
    each
    for each in EXCHANGES
    if each.api.key
    in {
        *(ApiKey.PEER_STATUS, ApiKey.RAFT, ApiKey.RAFT_SNAPSHOT, ApiKey.FORWARD_COMMAND),
        *(ApiKey.JOIN, ApiKey.BROKER_HEARTBEAT, ApiKey.REPLICA_FETCH, ApiKey.REPLICA_DURABLE),
        ApiKey.REPLICA_READ,
    }
]


async def test_a_client_sends_no_request_of_a_node(mock_clock: MockClock) -> None:
    """Otherwise any client joins the cluster, moves the controller, or replaces metadata."""
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        for exchange in OF_NODES:
            with pytest.raises(NotANodeError, match="only nodes of the cluster may send this"):
                await client.ask(exchange.api, exchange.request)

        lines = world.told("request_refused")
        assert [line["peer"] for line in lines] == [lines[0]["peer"]], "one line for each minute"


@pytest.mark.parametrize(
    "exchange",
    [each for each in OF_NODES if each.name not in {"forward_command", "raft", "raft_snapshot"}],
    ids=lambda exchange: exchange.name,
)
async def test_a_node_sends_no_request_of_another_node(
    exchange: Exchange, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.node(77) as node:
        changes = {"cluster_id": broker.cluster_id, "is_passed_on": False}
        request = msgspec.structs.replace(
            cast("msgspec.Struct", exchange.request),
            **{name: changes[name] for name in changes if hasattr(exchange.request, name)},
        )

        with pytest.raises(NotANodeError, match=r"node 77 sent a (request as|message of) node"):
            await node.ask(exchange.api, request)


async def test_a_node_with_another_secret_is_refused_by_both_sides(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        with pytest.raises(ConnectionLostError, match="node 1 does not know the secret"):
            async with world.node(2, secret=b"the secret of another cluster"):
                pass

        request = ProveNodeRequest(2, bytes(32), b"a guess")
        with pytest.raises(NotANodeError, match="node 2 does not know the secret"):
            await client.ask(api.PROVE_NODE, request)

        (line,) = world.told("request_refused")
        assert "node 2 does not know the secret of this cluster" in str(line["reason"])


async def test_a_new_queue_is_served_and_empty(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)

        assert await receive(client, queue) == []
        assert await states(client, queue) == (0, 0, 0, 0)
