"""A broker that serves consumer groups, in a thread of its own, for tests of what blocks."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import trio
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.fake_cluster import FakeCluster
from tests.client.group_service import GroupService
from tidelog.blocking.thread import TrioThread
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.wire.env.real.tcp import TcpNetwork

QUICK = GroupConfig(
    heartbeat_interval_ms=200,
    waiting_interval_ms=50,
    initial_rebalance_delay_ms=10,
    assignment_interval_ms=50,
    replacement_delay_ms=0,
)
"""A config in which groups become stable at once."""


@asynccontextmanager
async def _group_server() -> AsyncGenerator[str, None]:
    world = World(MockClock())  # Time passes by itself; no test advances this clock.
    async with world.broker(), world.client() as upstream, trio.open_nursery() as nursery:
        cluster = FakeCluster(world, upstream, nursery)
        cluster.network = TcpNetwork()
        groups = GroupService(cluster, QUICK)
        nursery.start_soon(groups.run)
        await cluster.start(1)
        host, port = cluster.fronts[1].address
        yield f"{host}:{port}"
        nursery.cancel_scope.cancel()


@contextmanager
def group_server_in_a_thread() -> Generator[str, None, None]:
    """Serve while the block runs; give the address."""
    thread = TrioThread(_group_server())
    try:
        yield thread.resource
    finally:
        thread.close()
