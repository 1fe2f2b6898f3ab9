"""The controller: silent brokers lose their leaderships, and get them back when they return."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from tests.coordinator.raft_clients import until
from tests.coordinator.raft_nodes import Host, Made, hosts, watch_roles
from tests.simulation.machine.world import Simulation, World
from tidelog.coordinator.controller.controller import Controller
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.metadata.broker_sessions import SESSION_MS, BrokerHeartbeat
from tidelog.coordinator.metadata.commands import CreateReplicatedTopic, RegisterBroker, Registered
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.wire.env.env import Env
from tidelog.wire.errors import NotControllerError, RequestTimedOutError, StaleBrokerEpochError

TOPIC_ID = b"a topic of three"


class Cluster:
    """Three voters, and brokers 1 to 3, whose heartbeats are sent by the test itself."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        self.world = world
        self.alive: set[int] = set()
        self.epochs: dict[int, int] = {}
        self.refused_since: dict[int, float] = {}
        """By node: since when its machine has refused connections."""
        self.controllers: dict[int, Controller] = {}
        self._nursery = nursery
        self.group = hosts(world, 3, self._make_state)

    def _make_state(self, env: Env, node: RaftNode, _: trio.Nursery) -> Made:
        metadata = ReplicatedState(env, node)
        node.on_role_changed(metadata.role_changed)
        controller = Controller(env, node, metadata, refused_since=self.refused_since.get)
        self.controllers[node.identity.node_id] = controller
        return Made(metadata, tasks=[controller.run])

    async def begin(self) -> None:
        """Start all; return when three brokers are alive and each leads a partition."""
        for host in self.group:
            host.start()
        for node_id in (1, 2, 3):
            await self.register(node_id)
            self._nursery.start_soon(self._beat, node_id)
        self.alive = {1, 2, 3}
        await until(lambda: len(self.live_brokers()) == 3)
        metadata = await self.leading()
        await metadata.decide(
            CreateReplicatedTopic(
                "topic", TOPIC_ID, 3, {}, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]]
            )
        )

    async def register(self, node_id: int) -> None:
        metadata = await self.leading()
        reply = await metadata.decide(
            RegisterBroker(
                node_id, f"disk {node_id}", f"{trio.current_time()}", f"node{node_id}", 8433
            )
        )
        assert isinstance(reply, Registered)
        self.epochs[node_id] = reply.broker_epoch

    async def leading(self) -> ReplicatedState:
        """Return the metadata of the leader."""
        await until(lambda: self._leader() is not None)
        host = self._leader()
        assert host is not None
        assert isinstance(host.state, ReplicatedState)
        return host.state

    def _leader(self) -> Host | None:
        for host in self.group:
            if host.raft is not None and host.raft.is_active_leader:
                return host
        return None

    async def _beat(self, node_id: int) -> None:
        while True:
            await trio.sleep(2)
            host = self._leader()
            if node_id in self.alive and host is not None:
                heartbeat = BrokerHeartbeat(node_id, self.epochs[node_id])
                with trio.move_on_after(2):
                    try:
                        controller = self.controllers[host.node_id]
                        await controller.heartbeat(heartbeat, is_caught_up=True)
                    except (NotControllerError, RequestTimedOutError, StaleBrokerEpochError):
                        continue

    def live_brokers(self) -> list[int]:
        """Return the brokers that are not fenced."""
        host = self._leader()
        if host is None or not isinstance(host.state, ReplicatedState):
            return []
        brokers = host.state.state.brokers.values()
        return [broker.node_id for broker in brokers if not broker.is_fenced]

    def leaders(self) -> list[int | None]:
        """Return the leader of each partition."""
        return [partition.leader for partition in self.partitions()]

    def partitions(self) -> list[PartitionRegistration]:
        """Return the partitions of the topic."""
        host = self._leader()
        if host is None or not isinstance(host.state, ReplicatedState):
            return []
        return list(host.state.state.partitions(TOPIC_ID))


def play(story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        watch_roles(world)
        async with trio.open_nursery() as nursery:
            cluster = Cluster(world, nursery)
            with trio.fail_after(600):
                await cluster.begin()
                await story(cluster)
            nursery.cancel_scope.cancel()

    Simulation(1).run(main)


def test_a_silent_broker_is_fenced_after_its_session_and_others_lead() -> None:
    async def story(cluster: Cluster) -> None:
        await until(lambda: cluster.leaders() == [1, 2, 3])
        cluster.alive.discard(2)
        silent_since = trio.current_time()

        await until(lambda: cluster.live_brokers() == [1, 3])

        assert SESSION_MS / 1000 - 2.5 < trio.current_time() - silent_since < SESSION_MS / 1000 + 2
        assert cluster.leaders() == [1, 3, 3]
        assert all(2 not in partition.in_sync_replicas for partition in cluster.partitions())

    play(story)


def test_a_broker_with_refused_connections_is_fenced_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        await until(lambda: cluster.leaders() == [1, 2, 3])
        cluster.alive.discard(2)
        cluster.refused_since[2] = dead_since = trio.current_time()

        await until(lambda: cluster.live_brokers() == [1, 3])

        assert trio.current_time() - dead_since < 1.5
        assert cluster.leaders() == [1, 3, 3]

    play(story)


def test_a_broker_that_sends_heartbeats_but_refuses_connections_stays_fenced() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.refused_since[2] = trio.current_time()
        await until(lambda: cluster.live_brokers() == [1, 3])
        epochs = [partition.partition_epoch for partition in cluster.partitions()]

        await trio.sleep(10)
        assert cluster.live_brokers() == [1, 3]
        assert [partition.partition_epoch for partition in cluster.partitions()] == epochs

        del cluster.refused_since[2]
        await until(lambda: cluster.live_brokers() == [1, 2, 3])

    play(story)


def test_a_quickly_restarted_broker_is_not_fenced() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.refused_since[2] = trio.current_time()
        await trio.sleep(0.5)
        del cluster.refused_since[2]

        await trio.sleep(5)
        assert cluster.live_brokers() == [1, 2, 3]

    play(story)


def test_a_broker_that_comes_back_is_unfenced() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.alive.discard(2)
        await until(lambda: cluster.live_brokers() == [1, 3])

        await cluster.register(2)
        cluster.alive.add(2)

        await until(lambda: cluster.live_brokers() == [1, 2, 3])

    play(story)


def test_a_new_leader_gives_every_broker_a_full_session() -> None:
    async def story(cluster: Cluster) -> None:
        old = next(host for host in cluster.group if host.raft and host.raft.is_active_leader)
        broker_id = next(host.node_id for host in cluster.group if host is not old)
        cluster.alive.discard(broker_id)
        await trio.sleep(SESSION_MS / 1000 * 2 / 3)
        old.cut_power()
        await cluster.leading()
        begun_at = trio.current_time()

        await until(lambda: broker_id not in cluster.live_brokers())

        assert trio.current_time() - begun_at > SESSION_MS / 1000 - 1

    play(story)


def test_a_heartbeat_of_an_earlier_process_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        old_epoch = cluster.epochs[3]
        await cluster.register(3)
        host = next(host for host in cluster.group if host.raft and host.raft.is_active_leader)

        with pytest.raises(StaleBrokerEpochError, match="older process must register again"):
            await cluster.controllers[host.node_id].heartbeat(
                BrokerHeartbeat(3, old_epoch), is_caught_up=True
            )

    play(story)


def test_a_follower_refuses_broker_heartbeats() -> None:
    async def story(cluster: Cluster) -> None:
        other = next(host for host in cluster.group if host.raft and not host.raft.is_leader)

        with pytest.raises(NotControllerError, match="ask node"):
            await cluster.controllers[other.node_id].heartbeat(
                BrokerHeartbeat(1, cluster.epochs[1]), is_caught_up=True
            )

    play(story)


def test_a_broker_may_stop_when_it_leads_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        host = next(host for host in cluster.group if host.raft and host.raft.is_active_leader)
        cluster.alive.discard(1)
        leaving = BrokerHeartbeat(1, cluster.epochs[1], wants_to_stop=True)

        answer = await cluster.controllers[host.node_id].heartbeat(leaving, is_caught_up=True)

        assert answer.may_stop
        assert 1 not in cluster.leaders()

    play(story)
