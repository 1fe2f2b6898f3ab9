"""Discovery of one cluster by nodes that start at different times, and fail meanwhile."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, final

import pytest
import trio

from tests.cluster_secret import dialer_of
from tests.coordinator.raft_clients import until
from tests.coordinator.raft_nodes import PORT, Answer, Answerer, listen
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tidelog.coordinator.bootstrap.decision import FormCluster
from tidelog.coordinator.bootstrap.discovery import find_cluster
from tidelog.wire.errors import ConfigError
from tidelog.wire.messages.cluster import Peer, PeerStatusReply
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api


@final
class Fresh:
    """A machine whose node looks for a cluster; once it has one, its disk keeps it."""

    def __init__(self, world: World, node_id: int, *peer_ids: int) -> None:
        self.node_id = node_id
        self.cluster_id: str | None = None
        self.error: ConfigError | None = None
        self.machine = world.add_node(f"node{node_id}")
        self._peer_ids = list(peer_ids)
        self._first_voters: list[Peer] = []

    def start(self) -> None:
        """Start the process."""
        self.machine.start(self._run)

    def status(self) -> PeerStatusReply:
        """Return its status."""
        peer = Peer(self.node_id, b"disk %d" % self.node_id)
        return PeerStatusReply(peer, self._peer_ids, self.cluster_id, self._first_voters)

    async def _run(self, process: Process) -> None:
        addresses = {node_id: (f"node{node_id}", PORT) for node_id in self._peer_ids}

        def answer(message: object, attachment: memoryview) -> PeerStatusReply:
            del message, attachment
            return self.status()

        answers: dict[Api[Any, Any], Answer] = {api.PEER_STATUS: answer}
        answerer = Answerer(self.node_id, answers)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                partial(listen, process.env, self.machine.name, answerer, nursery=nursery)
            )
            if self.cluster_id is None:
                try:
                    decision = await find_cluster(
                        process.env,
                        dialer_of(process.env, self.node_id),
                        self.status(),
                        addresses=addresses,
                    )
                except ConfigError as error:
                    self.error = error
                else:
                    self._first_voters = (
                        decision.voters
                        if isinstance(decision, FormCluster)
                        else decision.first_voters
                    )
                    self.cluster_id = (
                        f"formed by {self.node_id}"
                        if isinstance(decision, FormCluster)
                        else decision.cluster_id
                    )
            await trio.sleep_forever()


def play(story: Callable[[World], Awaitable[None]], *, seed: int = 1) -> None:
    async def main(world: World) -> None:
        with trio.fail_after(600):
            await story(world)

    Simulation(seed).run(main)


def test_three_nodes_form_one_cluster_and_know_its_first_voters() -> None:
    async def story(world: World) -> None:
        nodes = [Fresh(world, node_id, 1, 2, 3) for node_id in (1, 2, 3)]
        for node in reversed(nodes):
            node.start()
            await trio.sleep(3)

        await until(lambda: all(node.cluster_id == "formed by 1" for node in nodes))
        assert len({str(node.status().first_voters) for node in nodes}) == 1
        assert len(nodes[0].status().first_voters) == 3

    play(story)


def test_no_cluster_is_formed_while_a_peer_is_down() -> None:
    async def story(world: World) -> None:
        nodes = [Fresh(world, node_id, 1, 2, 3) for node_id in (1, 2, 3)]
        nodes[0].start()
        nodes[1].start()
        await trio.sleep(60)
        assert [node.cluster_id for node in nodes] == [None, None, None]

        nodes[2].start()

        await until(lambda: all(node.cluster_id == "formed by 1" for node in nodes))

    play(story)


def test_a_late_node_joins_an_existing_cluster() -> None:
    async def story(world: World) -> None:
        first, late = Fresh(world, 5, 5), Fresh(world, 2, 2, 5)
        first.start()
        await until(lambda: first.cluster_id == "formed by 5")

        late.start()

        await until(lambda: late.cluster_id == "formed by 5")

    play(story)


def test_nodes_with_different_peer_lists_are_refused() -> None:
    async def story(world: World) -> None:
        nodes = [Fresh(world, 1, 1, 2), Fresh(world, 2, 1, 2, 3), Fresh(world, 3, 1, 2, 3)]
        for node in nodes:
            node.start()

        await until(lambda: nodes[0].error is not None)
        assert "start all of them with the same" in str(nodes[0].error)
        assert {node.cluster_id for node in nodes} == {None}

    play(story)


def test_a_wrong_node_at_a_peer_address_is_refused() -> None:
    async def story(world: World) -> None:
        node, stranger = Fresh(world, 1, 1, 2), Fresh(world, 2, 2)
        stranger.node_id = 9
        node.start()
        stranger.start()

        await until(lambda: node.error is not None)

        assert node.cluster_id is None
        assert "--peers says that node 2 is at node2:8433, but node 9" in str(node.error)

    play(story)


@pytest.mark.parametrize("seed", range(5))
def test_crashes_and_partitions_leave_one_cluster(
    seed: int,
) -> None:
    async def story(world: World) -> None:
        random = world.streams.stream("story")
        nodes = [Fresh(world, node_id, 1, 2, 3) for node_id in (1, 2, 3)]
        heals: list[Callable[[], None]] = []
        for _ in range(30):
            await trio.sleep(random.expovariate(1.0))
            node = random.choice(nodes)
            if node.machine.process is None:
                node.start()
            elif random.random() < 0.5:
                node.machine.kill()
            else:
                others = [each.machine.name for each in nodes if each is not node]
                one_way = random.random() < 0.5
                heals.append(world.network.partition([node.machine.name], others, one_way=one_way))
            if heals and random.random() < 0.5:
                heals.pop()()
        for heal in heals:
            heal()
        for node in nodes:
            if node.machine.process is None:
                node.start()
        await until(lambda: all(node.cluster_id is not None for node in nodes))
        assert {node.cluster_id for node in nodes} == {"formed by 1"}

    play(story, seed=seed)
