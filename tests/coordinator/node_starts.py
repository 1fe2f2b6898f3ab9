"""Starts of a node from a data directory, and the peers that it may ask."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import trio

from tests.broker.world import World, settle
from tests.cluster_secret import dialer_of
from tests.coordinator.raft_nodes import PORT, Answer, Answerer
from tests.simulation.machine.faulty_disk import FaultyDisk, StaleHandleError
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.network.connection import Connection
from tidelog.broker.network.refusals import Refusals
from tidelog.broker.partitions.data_directory import DataDirectory, DiskIds, open_data_directory
from tidelog.broker.requests.memory_budget import MemoryBudget
from tidelog.coordinator.bootstrap.open_node import METADATA_DIRECTORY, OpenedNode, open_node
from tidelog.coordinator.node import ClusterNode
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.wire.errors import DataDirectoryError
from tidelog.wire.messages.cluster import Peer, PeerStatusReply
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

Addresses = Mapping[int, tuple[str, int]]
ALONE: Addresses = {}
THREE: Addresses = {node_id: (f"node{node_id}", PORT) for node_id in (1, 2, 3)}
THEIRS = "their cluster"
LOG = f"{METADATA_DIRECTORY}/{0:020d}.log"


class Opened(NamedTuple):
    """A successful start."""

    found: OpenedNode
    directory: DataDirectory
    answers: list[PeerStatusReply]
    """The statuses that peers got during the start."""


async def start(world: World, addresses: Addresses = ALONE, *, node_id: int = 1) -> Opened:
    """Start a node on the disk of `world`."""
    random = world.env.random
    disk_ids = DiskIds.draw(random)
    directory = open_data_directory(world.disk, node_id=node_id, disk_ids=disk_ids)
    answers: list[PeerStatusReply] = []
    try:
        files = FileCache(world.disk)
        found = await open_node(
            world.env,
            files,
            directory,
            dialer=dialer_of(world.env, directory.peer.node_id),
            addresses=addresses,
            answer=answers.append,
        )
    except (DataDirectoryError, OSError):
        directory.release()
        raise
    directory.release()
    return Opened(found, directory, answers)


async def refusal(world: World, addresses: Addresses = ALONE) -> str:
    """Return the error of a refused start."""
    with pytest.raises(DataDirectoryError) as caught:
        await start(world, addresses)
    return str(caught.value)


@asynccontextmanager
async def peers(
    world: World, answers: Mapping[int, Callable[[], PeerStatusReply]]
) -> AsyncGenerator[None]:
    """Run peers with these statuses."""
    config = BrokerConfig()
    memory = MemoryBudget(config.queued_max_request_bytes, largest_bytes=20 << 20)

    async def serve(node_id: int, answer: Callable[[], PeerStatusReply]) -> None:
        def status(message: object, attachment: memoryview) -> PeerStatusReply:
            del message, attachment
            return answer()

        served: dict[Api[Any, Any], Answer] = {api.PEER_STATUS: status}
        answerer: Any = Answerer(node_id, served)
        listener = await world.network.listen(f"node{node_id}", PORT)
        while True:
            stream = await listener.accept()
            connection = Connection(
                world.env,
                config,
                stream,
                dispatcher=answerer,
                memory=memory,
                refusals=Refusals(world.env.probe),
            )
            nursery.start_soon(connection.run)

    async with trio.open_nursery() as nursery:
        for node_id, answer in answers.items():
            nursery.start_soon(serve, node_id, answer)
        await settle()
        yield
        nursery.cancel_scope.cancel()


def member(
    node_id: int, cluster_id: str | None = THEIRS, *first_voters: Peer
) -> Callable[[], PeerStatusReply]:
    """Return the status of a cluster's node, or of a fresh one without a cluster."""
    peer = Peer(node_id, b"disk of %d" % node_id)
    return lambda: PeerStatusReply(peer, list(THREE), cluster_id, list(first_voters))


@asynccontextmanager
async def at_work(world: World, found: OpenedNode) -> AsyncGenerator[ClusterNode]:
    """Run a node, and wait until it leads if it is alone, until the end of the block."""
    async with trio.open_nursery() as nursery:
        node = ClusterNode(world.env, found, ALONE, nursery=nursery, dialer=dialer_of(world.env, 1))
        nursery.start_soon(node.run)
        await settle()
        await node.wait_first_term()
        yield node
        nursery.cancel_scope.cancel()


def crash_at(disk: FaultyDisk, call_count: int) -> None:
    """End the process at the call with this number, from now on and counted from 0."""
    calls_left = call_count

    def crash(operation: str, path: str) -> None:
        nonlocal calls_left
        del operation, path
        if calls_left == 0:
            raise StaleHandleError
        calls_left -= 1

    disk.before_call = crash
