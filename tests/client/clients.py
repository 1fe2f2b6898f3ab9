"""Clients of a real broker, in one process on virtual time.

A test requests `autojump_clock` itself: only then does time jump while all tasks wait.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Unpack

from trio.testing import MockClock

from tests.broker.world import ADDRESS, World
from tidelog.client.client import Client, connect
from tidelog.client.config import ClientSettings


@asynccontextmanager
async def client_of(
    world: World, **settings: Unpack[ClientSettings]
) -> AsyncGenerator[Client, None]:
    """Run a broker in `world`, and a client of it, while the block runs."""
    address = "{}:{}".format(*ADDRESS)
    async with world.broker(), connect(address, env=world.env, **settings) as client:
        yield client


@asynccontextmanager
async def orders_client(time: MockClock, partition_count: int = 1) -> AsyncGenerator[Client, None]:
    """Run a new broker with a topic `orders`, and a client of it, while the block runs."""
    async with client_of(World(time)) as client:
        await client.admin.create_topic("orders", partition_count)
        yield client
