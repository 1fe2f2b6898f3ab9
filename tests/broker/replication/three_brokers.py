"""Three brokers of one cluster, each on a machine of its own, and a client.

Real code on virtual time; machines are killed, paused and cut off from each other.
"""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TypeVar, final

import trio

from tests.cluster_secret import SECRET, dialer_of
from tests.coordinator.raft_clients import until
from tests.logstore.logs import records_in
from tests.simulation.machine.node import Node
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.server import Broker, open_broker
from tidelog.client.client import Client, connect
from tidelog.coordinator.metadata.commands import PartitionAnswers, Reassignment, ReassignReplicas
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.wire.env.env import Env, Probe
from tidelog.wire.transport.rpc import RpcConnection, open_rpc

Result = TypeVar("Result")

PORT = 8433
NODES = (1, 2, 3)
TOPIC = "orders"

Acknowledged = dict[int, bytes]
"""Values by acknowledged offset."""


async def make_topic(client: Client, partitions: int = 1, durability: str = "fsync") -> None:
    """Create the topic with a replica of each partition on each broker."""
    await client.admin.create_topic(
        TOPIC, partitions, replication_factor=3, config={"durability": durability}
    )


async def produce(
    client: Client, count: int, *, start: int = 0, partition: int = 0
) -> Acknowledged:
    """Return acknowledged records, by offset."""
    acknowledged: Acknowledged = {}
    async with client.producer() as producer:
        for number in range(count):
            value = b"order %d" % (start + number)
            receipt = await producer.send(TOPIC, value, partition=partition)
            assert receipt.offset is not None
            acknowledged[receipt.offset] = value
    return acknowledged


def host_of(node_id: int) -> str:
    return f"node{node_id}"


def connected(process: Process, node_id: int) -> AbstractAsyncContextManager[RpcConnection]:
    """Connect to one broker and say hello, until the end of the block."""
    return open_rpc(process.env.network, host_of(node_id), PORT, client_id="", client_version="")


def connected_as(
    own_id: int, process: Process, node_id: int
) -> AbstractAsyncContextManager[RpcConnection]:
    """Connect to one broker as the node `own_id`, and prove to be that."""
    return dialer_of(process.env, own_id).open(host_of(node_id), PORT, name="")


@final
class ThreeBrokers:
    """The machines, and the brokers on them."""

    def __init__(self, world: World, **settings: int) -> None:
        self.world = world
        self.machines: dict[int, Node] = {node: world.add_node(host_of(node)) for node in NODES}
        self.brokers: dict[int, Broker] = {}
        """Nodes that serve now."""
        self.peers: dict[int, tuple[int, ...]] = dict.fromkeys(NODES, NODES)
        """The list of nodes with which each broker starts; empty for a cluster of one."""
        self.key_files: dict[int, str] = {}
        """Texts of the files with the master keys, by node."""
        self.serves_http = False
        """Whether brokers that start from now on serve HTTP on port 8480."""
        self.env_of: Callable[[int, Process], Env] = lambda _, process: process.env
        """Returns the environment of a broker that starts, by node id; 0 is that of a client."""
        self._stops: dict[int, trio.Event] = {}
        self._settings = settings

    def start(self, *node_ids: int) -> None:
        """Start brokers that are down."""
        for node_id in node_ids or NODES:
            self._stops[node_id] = trio.Event()
            self.machines[node_id].start(self._program(node_id))

    def stop(self, node_id: int) -> None:
        """Stop a broker with a controlled shutdown."""
        self._stops[node_id].set()

    def kill(self, node_id: int) -> None:
        self.brokers.pop(node_id, None)
        self.machines[node_id].kill()

    def cut_power(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.brokers.pop(node_id, None)
            self.machines[node_id].cut_power()

    async def serve(self, count: int = 3) -> None:
        """Wait until so many brokers serve."""
        await until(lambda: len(self.brokers) >= count)

    def partition(self, node_id: int, name: str = TOPIC, number: int = 0) -> Partition | None:
        """Return a replica in the broker's process."""
        broker = self.brokers.get(node_id)
        if broker is None or broker._partitions is None or broker._cluster is None:
            return None
        topics = broker._cluster.metadata.state.catalog.topics
        ids = [topic.topic_id for topic in topics if topic.name == name]
        return broker._partitions.replica(ids[0], number) if ids else None

    def leader(self, name: str = TOPIC, number: int = 0) -> int | None:
        """Return the leader, that of the latest leader epoch if there are several."""
        leading = [
            (partition.leader.leader_epoch, node_id)
            for node_id in self.brokers
            if (partition := self.partition(node_id, name, number)) and partition.leader is not None
        ]
        return max(leading)[1] if leading else None

    async def leads(self, *, other_than: int | None = None) -> int:
        """Wait until a broker leads, except for `other_than`, and return its node id."""
        await until(lambda: self.leader() not in {None, other_than})
        leader = self.leader()
        assert leader is not None
        return leader

    def in_sync(self, number: int = 0) -> set[int]:
        """Return the ISR in the leader's metadata."""
        leader_id = self.leader(number=number)
        partition = None if leader_id is None else self.partition(leader_id, number=number)
        if partition is None or partition.leader is None:
            return set()
        return set(partition.leader.replicas.in_sync_replicas)

    async def all_in_sync(self, number: int = 0) -> None:
        """Wait until all replicas are in sync and equally long."""
        await until(lambda: self.in_sync(number) == set(NODES), 60)
        await until(lambda: len({self.end_of(node, number) for node in NODES}) == 1, 60)

    def end_of(self, node_id: int, number: int = 0) -> int:
        partition = self.partition(node_id, number=number)
        return -1 if partition is None else partition.log.log_end_offset

    def state(self, node_id: int) -> ClusterState:
        """Return the metadata of a broker."""
        cluster = self.brokers[node_id]._cluster
        assert cluster is not None
        return cluster.metadata.state

    def knows(self, node_id: int, name: str) -> bool:
        """Return whether the metadata of a broker has a topic."""
        return self.state(node_id).catalog.has_topic(name)

    def controller(self) -> int:
        """Return the node that leads the cluster."""
        for node_id, broker in self.brokers.items():
            if broker._cluster is not None and broker._cluster.raft.is_active_leader:
                return node_id
        raise AssertionError("no node leads the cluster")

    async def reassign(self, replicas: list[int], name: str = TOPIC) -> None:
        """Move the replicas of a partition."""
        broker = next(iter(self.brokers.values()))
        assert broker._cluster is not None
        topic_id = broker._cluster.metadata.state.catalog.topic(name).topic_id
        command = ReassignReplicas([Reassignment(topic_id, 0, replicas)])
        reply = await broker._cluster.command_client.submit(command, timeout_s=5)
        assert isinstance(reply, PartitionAnswers)
        assert reply.answers[0].error is None

    def are_live(self, count: int) -> bool:
        """Return whether so many brokers are registered and not fenced, for the first one."""
        known = self.state(min(self.brokers)).brokers.values()
        return sum(not broker.is_fenced for broker in known) >= count

    def is_settled(self, partition_count: int) -> bool:
        """Return whether all replicas of a topic have their log end as the high watermark."""
        for number in range(partition_count):
            replicas = [self.partition(node, number=number) for node in NODES]
            ends = {replica and replica.log.log_end_offset for replica in replicas}
            committed = {replica and replica.high_watermark for replica in replicas}
            if len(ends) > 1 or ends != committed:
                return False
        return True

    def followers(self) -> list[int]:
        """Return the followers."""
        return [node for node in NODES if node != self.leader()]

    def high_watermark(self) -> int:
        """Return the high watermark of the leader."""
        leader_id = self.leader()
        partition = None if leader_id is None else self.partition(leader_id)
        return -1 if partition is None else partition.high_watermark

    def records(self, node_id: int, number: int = 0, name: str = TOPIC) -> dict[int, bytes]:
        """Return all records of a replica, by offset."""
        partition = self.partition(node_id, name, number)
        assert partition is not None
        log = partition.log
        found: dict[int, bytes] = {}
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            part = log.read(offset, max_bytes=1 << 20, high_watermark=log.log_end_offset)
            assert part is not None
            found |= records_in((part if part.is_ready() else part.load()).read())
            offset = max(found) + 1
        return found

    async def check(self, acknowledged: Acknowledged, number: int = 0) -> None:
        """Check that every acknowledged record is at its offset on every replica, once."""
        await self.all_in_sync(number)
        replicas = [self.records(node_id, number) for node_id in NODES]
        for node_id, records in zip(NODES, replicas, strict=True):
            wrong = {at: value for at, value in acknowledged.items() if records.get(at) != value}
            assert not wrong, f"broker {node_id} has other records at {sorted(wrong)[:5]}"
            values = list(records.values())
            assert len(values) == len(set(values)), f"broker {node_id} has a record twice"
        assert replicas[0] == replicas[1] == replicas[2]

    async def with_client(
        self, work: Callable[[Client], Awaitable[Result]], *, probe: Probe | None = None
    ) -> Result:
        """Return the result of a client on a machine of its own; `probe` gets its events."""
        results: list[Result] = []
        done = trio.Event()

        async def run(process: Process) -> None:
            addresses = ",".join(f"{host_of(node)}:{PORT}" for node in NODES)
            env = self.env_of(0, process)
            env = env if probe is None else replace(env, probe=probe)
            async with connect(addresses, env=env) as client:
                results.append(await work(client))
            done.set()

        machine = self.world.add_node(f"client{len(self.world.nodes)}")
        machine.start(run)
        await done.wait()
        return results[0]

    def _program(self, node_id: int) -> Callable[[Process], Awaitable[None]]:
        async def serve(process: Process) -> None:
            config = BrokerConfig(
                node_id=node_id,
                listen=f"{host_of(node_id)}:{PORT}",
                http_listen=f"{host_of(node_id)}:8480" if self.serves_http else "",
                peers=",".join(f"{each}={host_of(each)}:{PORT}" for each in self.peers[node_id]),
                **self._settings,  # type: ignore[arg-type]  # numbers
            )

            async def read_key_file() -> str:
                return self.key_files.get(node_id, "")

            env = self.env_of(node_id, process)
            async with open_broker(
                config, env, process.disk, secret=SECRET, master_source=read_key_file
            ) as broker:
                self.brokers[node_id] = broker
                await self._stops[node_id].wait()
                self.brokers.pop(node_id, None)

        return serve


def live(
    seed: int,
    main: Callable[[ThreeBrokers], Awaitable[Result]],
    *,
    key_files: dict[int, str] | None = None,
    **settings: int,
) -> Result:
    """Return the result of `main` with three brokers that have just been started.

    `key_files` are the texts of files with master keys, by node.
    """

    async def run(world: World) -> Result:
        brokers = ThreeBrokers(world, **settings)
        brokers.key_files = key_files or {}
        brokers.start()
        await brokers.serve()
        return await main(brokers)

    return Simulation(seed).run(run)
