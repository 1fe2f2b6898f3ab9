"""Broker that may crash and network that may break, with a client, on virtual time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Unpack, final

import trio
from trio.testing import MockClock

from tests.broker.world import ADDRESS, World, settle
from tests.client.flaky_network import FlakyNetwork
from tidelog.client.client import Client, connect
from tidelog.client.config import ClientSettings

SEED = "{}:{}".format(*ADDRESS)


@final
class Scene:
    """A broker that may crash, and a network that may break."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        """Start the broker in `nursery`."""
        self.world = world
        self.network = FlakyNetwork(world.network)
        self.env = replace(world.env, network=self.network)
        """World of the clients, which survives that of the broker."""
        self._nursery = nursery
        self._crash = trio.Event()

    async def start(self) -> None:
        """Start the broker on the files of the last one."""
        await self._nursery.start(self._run)

    async def crash(self) -> None:
        """Kill the broker: what it has written stays."""
        self._crash.set()
        await settle()
        self.network.reset_all()
        self.world = self.world.after_crash()
        self.network.network = self.world.network
        self._crash = trio.Event()

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        crash = self._crash
        async with self.world.doomed_broker():
            task_status.started()
            await crash.wait()


@asynccontextmanager
async def scene(
    time: MockClock, **settings: Unpack[ClientSettings]
) -> AsyncGenerator[tuple[Client, Scene], None]:
    """Run a broker with a topic `orders`, and a client of it."""
    async with trio.open_nursery() as nursery:
        stage = Scene(World(time), nursery)
        await stage.start()
        async with connect(SEED, env=stage.env, **settings) as client:
            await client.admin.create_topic("orders")
            yield client, stage
        nursery.cancel_scope.cancel()
