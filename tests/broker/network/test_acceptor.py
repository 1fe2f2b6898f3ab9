"""Tests of the acceptor: it serves connections up to its limits, and never closes served ones."""

import errno
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import tidelog.broker.network.acceptor
from tests.broker.world import ADDRESS, World, config, settle
from tests.cluster_secret import SECRET
from tidelog.broker.api_handlers import discovery_routes, handshake_routes
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.handlers.handshake import HandshakeHandler, NodeIdentityHandler
from tidelog.broker.network.acceptor import Acceptor, listen
from tidelog.broker.requests.identity import ClientIdentity
from tidelog.wire.errors import (
    BrokerNotReadyError,
    ConfigError,
    ConnectionLostError,
    OverloadedError,
)
from tidelog.wire.messages.cluster import PeerStatusRequest
from tidelog.wire.messages.handshake import HelloRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.security.principal import user_principal

APIS = (api.HELLO, api.PROVE_NODE, api.METADATA, api.PEER_STATUS)


@asynccontextmanager
async def accepting(world: World, **settings: object) -> AsyncGenerator[Acceptor]:
    """Accept connections and answer HELLO, until the end of the block."""
    async with trio.open_nursery() as nursery:
        acceptor = await an_acceptor(world, config(**settings), nursery)
        nursery.start_soon(acceptor.run)
        await settle()
        yield acceptor
        nursery.cancel_scope.cancel()


async def an_acceptor(world: World, settings: BrokerConfig, nursery: trio.Nursery) -> Acceptor:
    dispatcher = Dispatcher(nursery, APIS)
    introduction = HandshakeHandler(settings, APIS, version="0")
    identity = NodeIdentityHandler(world.env.random, node_id=1, secret=SECRET)
    dispatcher.serve_all(handshake_routes(introduction, identity))
    dispatcher.serve_nodes(discovery_routes(introduction))
    return Acceptor(
        world.env,
        settings,
        await listen(world.env, settings),
        dispatcher=dispatcher,
        nursery=nursery,
    )


async def test_a_connection_is_accepted_and_served(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with accepting(world) as acceptor:
        assert acceptor.address == ADDRESS
        async with world.client() as client, world.client():
            assert len(acceptor.connections) == 2
            with pytest.raises(BrokerNotReadyError, match="it has just started"):
                await client.ask(api.METADATA, MetadataRequest(None))
        await settle()

        assert len(acceptor.connections) == 0
        assert acceptor.memory.used_bytes == 0


async def test_connections_beyond_max_connections_are_closed_and_reported(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with accepting(world, max_connections=1), world.client() as client:
        with pytest.raises(ConnectionLostError):
            async with world.client():
                pass

        (told,) = world.told("connection_refused")
        assert told["reason"] == "there are 1 connections already"
        await client.ask(api.HELLO, HelloRequest("again", "0"))


async def test_silent_connections_make_room_for_others(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with accepting(world, max_connections=3) as acceptor, world.client() as client:
        strangers = [await world.raw_client() for _ in range(3)]
        await settle()
        assert strangers[0].is_turned_away()

        async with world.client() as late:
            await late.ask(api.HELLO, HelloRequest("again", "0"))

        await client.ask(api.HELLO, HelloRequest("again", "0"))
        assert [each.is_turned_away() for each in strangers] == [True, True, False]
        assert len(acceptor.connections) <= 3


async def test_a_principal_with_most_places_makes_room_for_others_and_no_other_does(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with accepting(world, max_connections=4) as acceptor, AsyncExitStack() as stack:
        quiet, *flood = [await stack.enter_async_context(world.client()) for _ in range(4)]
        connections = list(acceptor.connections)
        connections[0].authenticated(ClientIdentity(user_principal("quiet"), (), how="test"))
        for connection in connections[1:]:
            connection.authenticated(ClientIdentity(user_principal("flood"), (), how="test"))

        await stack.enter_async_context(world.client())
        await settle()
        assert [each.is_lost for each in flood] == [True, False, False]
        # Two of four places are no excess.
        with pytest.raises(ConnectionLostError):
            async with world.client():
                pass
        for each in (quiet, *flood[1:]):
            await each.ask(api.HELLO, HelloRequest("again", "0"))
        assert len(acceptor.connections) == 4


async def test_an_address_with_all_places_gets_no_other_by_one_more_connection(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with accepting(world, max_connections=3) as acceptor, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(world.client()) for _ in range(3)]
        assert len({each.share_key for each in acceptor.connections}) == 1

        with pytest.raises(ConnectionLostError):
            async with world.client():
                pass

        assert not any(each.is_lost for each in clients)


async def test_turns_are_needed_as_long_as_several_principals_are_connected(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with accepting(world) as acceptor, world.client():
        turns = acceptor.quotas.turns
        async with world.client():
            needed = [turns.is_needed]  # One address.

            *_, newest = acceptor.connections
            newest.authenticated(ClientIdentity(user_principal("alice"), (), how="test"))
            needed.append(turns.is_needed)
        await settle()
        needed.append(turns.is_needed)

        assert needed == [False, True, False]


async def test_clients_do_not_use_the_connections_reserved_for_nodes(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidelog.broker.network.acceptor, "_RESERVE_MAX", 1)
    world = World(mock_clock)
    settings = {"max_connections": 1, "peers": "1=h:1,2=h:2"}
    async with accepting(world, **settings) as acceptor, world.client() as client:
        with pytest.raises(BrokerNotReadyError):
            await client.ask(api.METADATA, MetadataRequest(None))
        async with world.client() as stranger:
            with pytest.raises(OverloadedError, match="for other nodes of its cluster"):
                await stranger.ask(api.METADATA, MetadataRequest(None))

            async with world.node(2) as node:
                with pytest.raises(BrokerNotReadyError, match="reading its metadata"):
                    await node.ask(api.PEER_STATUS, PeerStatusRequest(2))
                mock_clock.jump(1)  # A client watches its connection again some time after a call.
                await settle()
                assert stranger.is_lost, "it took the place of a node"

                with pytest.raises(ConnectionLostError):
                    async with world.client():
                        pass
                assert len(acceptor.connections) == 2


async def test_a_reserve_connection_is_served_when_there_is_room(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    settings = {"max_connections": 1, "peers": "1=h:1,2=h:2"}
    async with (
        accepting(world, **settings),
        world.client() as first,
        world.client() as late,
    ):
        with pytest.raises(OverloadedError):
            await late.ask(api.METADATA, MetadataRequest(None))

        first.close()
        await settle()

        with pytest.raises(BrokerNotReadyError):
            await late.ask(api.METADATA, MetadataRequest(None))


async def test_without_file_descriptors_accept_waits_and_continues(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with accepting(world):
        world.network.listeners[ADDRESS].fail_accept(errno.EMFILE)
        await settle()

        (told,) = world.told("accept_failed")
        assert "Too many open files" in str(told["reason"])
        await world.pass_time(1)
        async with world.client():
            pass


async def test_after_the_last_accept_open_connections_get_their_replies(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with accepting(world) as acceptor, world.client() as client:
        acceptor.refuse_more()
        await settle()

        with pytest.raises(ConnectionLostError):
            async with world.client():
                pass
        assert (await client.ask(api.HELLO, HelloRequest("again", "0"))).node_id == 1
        with trio.fail_after(0):
            await acceptor.finish()  # All replies have arrived.


async def test_a_cancelled_acceptor_frees_its_address(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with accepting(world):
        pass

    assert world.network.listeners == {}


async def test_a_defect_of_one_connection_does_not_affect_others(
    mock_clock: MockClock, defects: list[str]
) -> None:
    world = World(mock_clock)
    async with accepting(world) as acceptor, world.client() as client:
        stream = await world.network.connect(*ADDRESS)
        await settle()
        stream.break_peer(RuntimeError("a defect"))
        await settle()

        assert "a connection failed unexpectedly" in defects.pop()
        assert len(acceptor.connections) == 1
        await client.ask(api.HELLO, HelloRequest("again", "0"))


async def test_an_address_in_use_is_reported_with_advice(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    await listen(world.env, config())

    with pytest.raises(ConfigError) as refusal:
        await listen(world.env, config())

    assert str(refusal.value) == (
        "cannot listen on broker:8433: Address already in use; is another broker running there?"
        " choose another address with --listen"
    )
