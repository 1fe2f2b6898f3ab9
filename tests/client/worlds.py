"""A client of a real broker, in one process on virtual time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from client.client import Client, connect
from tests.broker.world import ADDRESS, World


@asynccontextmanager
async def client_of(world: World) -> AsyncGenerator[Client, None]:
    """Run a broker in `world`, and a client of it, while the block runs."""
    async with world.broker(), connect("{}:{}".format(*ADDRESS), env=world.env) as client:
        yield client
