"""A broker that enforces access, and clients of principals that it knows."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from tests.broker.world import World
from tidelog.broker.network.acceptor import Acceptor
from tidelog.broker.requests.identity import ClientIdentity
from tidelog.broker.server import Broker
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.access import AccessRule, AlterAccessRequest, RoleChange
from tidelog.wire.messages.features import UpdateFeaturesRequest
from tidelog.wire.protocol import api
from tidelog.wire.security.principal import user_principal
from tidelog.wire.transport.rpc import RpcConnection


@asynccontextmanager
async def client_of(
    world: World, broker: Broker, user: str, *roles: str
) -> AsyncGenerator[RpcConnection]:
    """Connect, and act as a user that has proved its identity."""
    async with world.client() as client:
        acceptor: Acceptor = vars(broker)["_acceptor"]
        *_, newest = acceptor.connections
        newest.authenticated(ClientIdentity(user_principal(user), roles, how="test"))
        yield client


@asynccontextmanager
async def administrator(world: World, broker: Broker) -> AsyncGenerator[RpcConnection]:
    """Connect, and act as an administrator."""
    async with client_of(world, broker, "root", "admin") as client:
        yield client


def rule(text: str) -> AccessRule:
    """Return the rule of a text such as `user:alice write topic orders`; `deny` may go first."""
    words = text.split(" ")
    is_deny = words[0] == "deny"
    principal, actions, kind, name = [*words[is_deny:], "*"][:4]
    return AccessRule(principal, kind, name, actions.split(","), is_deny)


async def features_known(client: RpcConnection) -> None:
    """Wait until a new cluster has its feature level."""
    request = UpdateFeaturesRequest(None)
    while (await client.ask(api.UPDATE_FEATURES, request)).level == 0:  # noqa: ASYNC110
        await trio.sleep(0.1)


async def grant(admin: RpcConnection, *texts: str) -> None:
    """Add rules."""
    await admin.ask(api.ALTER_ACCESS, AlterAccessRequest([rule(each) for each in texts]))


async def revoke(admin: RpcConnection, *texts: str) -> None:
    """Remove rules."""
    await admin.ask(api.ALTER_ACCESS, AlterAccessRequest([], [rule(each) for each in texts]))


async def set_role(admin: RpcConnection, name: str, *members: str) -> None:
    """Add members to a role."""
    change = RoleChange(name, list(members))
    await admin.ask(api.ALTER_ACCESS, AlterAccessRequest([], roles=[change]))


def why(error: BrokerError) -> tuple[str, str]:
    """Return the name of an error, and its text."""
    return type(error).__name__, str(error)
