"""A few nodes, each with a command client, and optionally a broker."""

from collections.abc import Awaitable, Callable

import trio

from tests.cluster_secret import dialer_of
from tests.coordinator.raft_clients import until
from tests.coordinator.raft_nodes import CLUSTER_ID, PORT, Host, Made, hosts, watch_roles
from tests.simulation.machine.faulty_disk import StaleHandleError
from tests.simulation.machine.world import Simulation, World
from tidelog.coordinator.controller.address_book import AddressBook
from tidelog.coordinator.controller.broker_lifecycle import BrokerInfo, BrokerLifecycle
from tidelog.coordinator.controller.command_client import CommandClient
from tidelog.coordinator.controller.controller import Controller
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.metadata.commands import Command, Reply
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.coordinator.raft_node.peer_client import PeerClient
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerNotReadyError,
    DuplicateBrokerError,
    LogOfflineError,
    RequestTimedOutError,
)
from tidelog.wire.messages.cluster import ForwardCommandReply, ForwardCommandRequest
from tidelog.wire.protocol import api


class Cluster:
    """Three nodes, or another number."""

    def __init__(self, world: World, *, has_brokers: bool = False, node_count: int = 3) -> None:
        self.world = world
        self.group = hosts(world, node_count, self._make)
        self.lifecycles: dict[int, BrokerLifecycle] = {}
        self.directory_epochs: dict[int, int] = {}
        """The broker of each node, of its last process."""
        self.refusals: dict[int, DuplicateBrokerError] = {}
        """Errors with which brokers had to stop."""
        self.unready_count = 0
        """Number of nodes that refuse their next command as not ready."""
        self._has_brokers = has_brokers
        self._command_clients: dict[int, CommandClient] = {}

    def _make(self, env: Env, node: RaftNode, nursery: trio.Nursery) -> Made:
        metadata = ReplicatedState(env, node)
        node.on_role_changed(metadata.role_changed)
        controller = Controller(env, node, metadata)
        all_addresses = {host.node_id: (f"node{host.node_id}", PORT) for host in self.group}
        addresses = AddressBook(all_addresses, lambda: metadata.state)
        peers = PeerClient(
            nursery,
            dialer_of(env, node.identity.node_id),
            name=f"node{node.identity.node_id}",
            address_of=addresses.address_of,
        )
        command_client = CommandClient(node, metadata, controller, peers=peers, addresses=addresses)
        self._command_clients[node.identity.node_id] = command_client

        async def decide(request: ForwardCommandRequest) -> ForwardCommandReply:
            if self.unready_count:
                self.unready_count -= 1
                raise BrokerNotReadyError("it has just started")
            return await command_client.decide(request)

        tasks = [controller.run]
        if self._has_brokers:
            tasks.append(lambda: self.be_a_broker(env, node, command_client, metadata=metadata))
        return Made(
            metadata,
            {
                api.FORWARD_COMMAND: decide,
                api.BROKER_HEARTBEAT: command_client.take_heartbeat,
                api.JOIN: command_client.join,
            },
            tasks,
        )

    async def be_a_broker(
        self, env: Env, node: RaftNode, command_client: CommandClient, *, metadata: ReplicatedState
    ) -> None:
        """Run the broker of a node, until another one replaces it."""
        node_id = node.identity.node_id
        held = self.directory_epochs.get(node_id, 0)
        info = BrokerInfo(node_id, f"disk {node_id}", f"node{node_id}", PORT, "", None, held)

        async def write_epoch(epoch: int) -> None:
            self.directory_epochs[node_id] = epoch

        lifecycle = BrokerLifecycle(
            env,
            command_client,
            metadata,
            info=info,
            cluster_id=CLUSTER_ID,
            is_only_voter=lambda: node.is_only_voter,
            write_epoch=write_epoch,
        )
        self.lifecycles[node_id] = lifecycle
        try:
            await lifecycle.run()
        except DuplicateBrokerError as error:
            self.refusals[node_id] = error

    def command_client(self, host: Host) -> CommandClient:
        """Return the command client of the process on a host."""
        assert host.raft is not None
        return self._command_clients[host.node_id]

    async def submit(self, host: Host, command: Command, *, timeout_s: float = 20.0) -> Reply:
        """Submit a command through one node."""
        try:
            return await self.command_client(host).submit(command, timeout_s=timeout_s)
        except (StaleHandleError, LogOfflineError) as error:
            raise RequestTimedOutError("the process that was asked has died") from error

    async def leader_and_another(self) -> tuple[Host, Host]:
        """Return the leading host, and another one that knows it."""
        found: list[Host] = []

        def is_known() -> bool:
            found[:] = [host for host in self.group if host.raft and host.raft.is_active_leader]
            return len(found) == 1 and all(
                host.raft is not None and host.raft.leader_id == found[0].node_id
                for host in self.group
            )

        await until(is_known)
        return found[0], next(host for host in self.group if host is not found[0])


def play(
    story: Callable[[Cluster], Awaitable[None]],
    *,
    seed: int = 1,
    has_brokers: bool = False,
    node_count: int = 3,
) -> None:
    """Run a scenario on a few nodes."""

    async def main(world: World) -> None:
        watch_roles(world)
        cluster = Cluster(world, has_brokers=has_brokers, node_count=node_count)
        for host in cluster.group:
            host.start()
        with trio.fail_after(600):
            await story(cluster)

    Simulation(seed).run(main)
