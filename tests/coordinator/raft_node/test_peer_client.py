"""Requests to other nodes: answers, refusals and losses."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio

from tests.cluster_secret import dialer_of
from tests.coordinator.raft_nodes import CLUSTER_ID, PORT, Answer, Answerer, listen
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tidelog.coordinator.raft_node.peer_client import PeerClient
from tidelog.wire.errors import ConnectionLostError, InvalidRequestError
from tidelog.wire.messages.cluster import RaftReply, RaftRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

QUESTION = RaftRequest(CLUSTER_ID, [])


def play(story: Callable[[World, PeerClient], Awaitable[None]], *, node_id: int = 2) -> None:
    """Run a scenario on node 1, with node `node_id` on the machine of node 2."""

    async def far(process: Process) -> None:
        def answer(message: RaftRequest, _: memoryview, __: int) -> object:
            if message.messages == [b"?"]:
                return RaftReply(cast("int", "no number"))
            if message.messages:
                raise InvalidRequestError("no messages, please")
            return RaftReply(node_id)

        answers: dict[Api[Any, Any], Answer] = {api.RAFT: answer}
        async with trio.open_nursery() as nursery:
            await listen(process.env, "node2", Answerer(node_id, answers), nursery=nursery)

    async def main(world: World) -> None:
        async def near(process: Process) -> None:
            async with trio.open_nursery() as nursery:
                peers = PeerClient(
                    nursery,
                    dialer_of(process.env, 1),
                    name="node1",
                    address_of=lambda node_id: ("node2", PORT) if node_id == 2 else None,
                )
                with trio.fail_after(100):
                    await story(world, peers)
                nursery.cancel_scope.cancel()

        world.add_node("node2").start(far)
        await world.add_node("node1").start(near).ended.wait()

    Simulation(1).run(main)


async def ask(peers: PeerClient, node_id: int = 2, question: RaftRequest = QUESTION) -> RaftReply:
    return await peers.ask(node_id, api.RAFT, question, timeout_s=3)


def test_a_peer_request_returns_its_answer_or_refusal() -> None:
    async def story(_: World, peers: PeerClient) -> None:
        assert await ask(peers) == RaftReply(2)
        with pytest.raises(InvalidRequestError, match="no messages"):
            await ask(peers, question=RaftRequest(CLUSTER_ID, [b"x"]))
        assert await ask(peers) == RaftReply(2)

    play(story)


def test_an_invalid_answer_closes_the_connection() -> None:
    """Otherwise a bit flip on the way would end the caller."""

    async def story(_: World, peers: PeerClient) -> None:
        with pytest.raises(ConnectionLostError, match="node 2 sent an invalid answer"):
            await ask(peers, question=RaftRequest(CLUSTER_ID, [b"?"]))
        assert await ask(peers) == RaftReply(2)

    play(story)


def test_concurrent_requests_share_a_connection() -> None:
    async def story(world: World, peers: PeerClient) -> None:
        closed: list[str] = []
        world.observe(lambda _node, event, _fields: closed.append(event))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask, peers)

        world.network.break_connections("node1", "node2")
        await trio.sleep(1)
        assert closed.count("connection_closed") == 1

    play(story)


def test_an_unknown_address_or_a_wrong_node_fails_the_request() -> None:
    async def story(_: World, peers: PeerClient) -> None:
        with pytest.raises(ConnectionLostError, match="address of node 5 is not known"):
            await ask(peers, 5)
        with pytest.raises(ConnectionLostError, match="node 9 is at node2:8433, not node 2"):
            await ask(peers)

    play(story, node_id=9)


def test_a_request_to_a_silent_node_times_out_and_a_later_one_reconnects() -> None:
    async def story(world: World, peers: PeerClient) -> None:
        assert await ask(peers) == RaftReply(2)
        heal = world.network.partition(["node1"], ["node2"])
        for _ in range(5):
            with pytest.raises(ConnectionLostError, match=r"did not answer|does not answer"):
                await ask(peers)

        heal()

        assert await ask(peers) == RaftReply(2)

    play(story)


def test_a_request_to_a_stopped_node_fails_at_once() -> None:
    async def story(world: World, peers: PeerClient) -> None:
        world.nodes["node2"].kill()

        with pytest.raises(ConnectionLostError, match="nothing listens there"):
            await ask(peers)

    play(story)
