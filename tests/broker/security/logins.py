"""Logins of tests, message by message, and the users that they are of."""

# Reads private state of brokers and clients.
# pyright: reportPrivateUsage=false

from typing import Final

from tests.coordinator.raft_clients import until
from tidelog.broker.server import Broker
from tidelog.coordinator.metadata.commands import Command
from tidelog.coordinator.security.commands import SetToken, SetUser
from tidelog.coordinator.security.records import ScramCredential
from tidelog.wire.messages.features import OWN_LEVELS
from tidelog.wire.messages.handshake import AuthenticateReply, AuthenticateRequest
from tidelog.wire.protocol import api
from tidelog.wire.security.scram import (
    SCRAM_SHA_256,
    SaltedBy,
    ScramLogin,
    password_keys,
    salted_password,
)
from tidelog.wire.security.token import TOKEN, new_token, parse_token
from tidelog.wire.transport.rpc import RpcConnection

BY: Final = SaltedBy(b"a salt of 16 b..", 4096)
"""Fewer iterations than in production: tests count messages, not time."""
ALICES: Final = "correct horse"
TOKEN_OF_ALICE: Final = new_token(bytes.fromhex("0123456789ab"), bytes(range(32)))


def credential(password: str) -> ScramCredential:
    keys = password_keys(salted_password(password, BY), BY)
    return ScramCredential(keys.salt, keys.iterations, keys.stored_key, keys.server_key)


async def change(broker: Broker, *commands: Command) -> None:
    """Change the metadata of a broker's cluster."""
    cluster = broker._cluster
    assert cluster is not None
    await until(lambda: cluster.metadata.state.feature_level == OWN_LEVELS.max_level)
    for command in commands:
        await cluster.command_client.submit(command, timeout_s=10)


async def with_alice(broker: Broker, *, expires_at_ms: int | None = None) -> None:
    """Create the user alice, with a password and a token."""
    parts = parse_token(TOKEN_OF_ALICE)
    assert parts is not None
    await change(
        broker,
        SetUser("alice", credential(ALICES)),
        SetToken(parts.token_id, "alice", parts.sha256, expires_at_ms),
    )


async def ask(client: RpcConnection, mechanism: str, data: bytes) -> AuthenticateReply:
    return await client.ask(api.AUTHENTICATE, AuthenticateRequest(mechanism, data))


async def login_by_password(
    client: RpcConnection, user: str = "alice", password: str = ALICES, *, nonce: bytes = b"nonce"
) -> AuthenticateReply:
    """Authenticate by SCRAM, and check the broker's proof."""
    login = ScramLogin(user, nonce)
    challenge = (await ask(client, SCRAM_SHA_256, login.first())).data
    salted = salted_password(password, login.challenge(challenge))
    reply = await ask(client, SCRAM_SHA_256, login.proof(salted))
    login.check(reply.data)
    return reply


async def login_by_token(client: RpcConnection, token: str = TOKEN_OF_ALICE) -> AuthenticateReply:
    return await ask(client, TOKEN, token.encode())
