"""Administration of users and tokens through the client, executed by a real broker."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.security.logins import TOKEN_OF_ALICE
from tests.broker.world import ADDRESS, START_MS, World
from tests.client.clients import client_of
from tests.simulation.machine.disk_contents import contents
from tidelog.client.client import Client, connect
from tidelog.wire.errors import (
    AuthenticationFailedError,
    ConfigError,
    InvalidRequestError,
)
from tidelog.wire.messages.users import TokenDescription, UserDescription
from tidelog.wire.security.scram import ITERATIONS
from tidelog.wire.security.token import parse_token

AT = "{}:{}".format(*ADDRESS)


def private_world(clock: MockClock) -> World:
    world = World(clock)
    world.network.is_encrypted = True
    return world


async def test_users_are_created_listed_and_removed(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.security.create_user("bob")
        await client.security.create_user("alice", "pencil")

        assert await client.security.list_users() == [
            UserDescription("alice", has_password=True, token_count=0),
            UserDescription("bob", has_password=False, token_count=0),
        ]
        assert await client.security.remove_user("bob")
        assert not await client.security.remove_user("bob")
        assert [each.name for each in await client.security.list_users()] == ["alice"]


async def test_a_user_is_created_once_and_an_unknown_one_gets_no_password(
    autojump_clock: MockClock,
) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.security.create_user("alice", "pencil")
        with pytest.raises(InvalidRequestError, match="user alice exists; change its password"):
            await client.security.create_user("alice", "other")
        with pytest.raises(InvalidRequestError, match="user bob does not exist; create it first"):
            await client.security.set_password("bob", "pencil")
        with pytest.raises(InvalidRequestError, match="user bob does not exist; create it first"):
            await client.security.create_token("bob")
        with pytest.raises(InvalidRequestError, match="'a b' is no legal name"):
            await client.security.create_user("a b", "pencil")
        with pytest.raises(ConfigError, match="password is empty"):
            await client.security.create_user("bob", "")


async def test_a_broker_keeps_neither_password_nor_token(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.security.create_user("alice", "a very secret pencil")
        token = await client.security.create_token("alice", description="ci")
    secret = token.rpartition("_")[2]
    for path, data in contents(world.disk).items():
        assert data is None or b"a very secret pencil" not in data, path
        assert data is None or secret.encode() not in data, path
    assert "secret pencil" not in repr(world.events)
    assert secret not in repr(world.events)


async def test_tokens_are_returned_once_listed_without_secret_and_revoked(
    autojump_clock: MockClock,
) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.security.create_user("alice")
        token = await client.security.create_token("alice", expires_in=60, description="ci")
        parts = parse_token(token)
        assert parts is not None

        (listed,) = await client.security.list_tokens("alice")
        assert isinstance(listed, TokenDescription)
        assert (listed.token_id, listed.user, listed.description) == (
            parts.token_id,
            "alice",
            "ci",
        )
        assert listed.expires_at_ms is not None
        assert 59_000 <= listed.expires_at_ms - START_MS <= 120_000
        assert await client.security.list_tokens("bob") == []
        assert await client.security.revoke_token(token)
        assert not await client.security.revoke_token(parts.token_id)
        with pytest.raises(ConfigError, match="12 hexadecimal digits"):
            await client.security.revoke_token("alice")
        with pytest.raises(ConfigError, match="lasts at least 1 s"):
            await client.security.create_token("alice", expires_in=0)


async def served(client: Client) -> bool:
    """Return whether a client gets an answer."""
    return bool((await client.admin.describe_cluster()).cluster_id)


async def test_a_client_logs_in_by_password_and_by_token(autojump_clock: MockClock) -> None:
    world = private_world(autojump_clock)
    async with client_of(world) as admin:
        await admin.security.create_user("alice", "pencil")
        token = await admin.security.create_token("alice")
        async with connect(AT, env=world.env, user="alice", password="pencil") as client:
            assert await served(client)
        async with connect(AT, env=world.env, token=token) as client:
            assert await served(client)
        async with connect(AT, env=world.env, token=lambda: token) as client:
            assert await served(client)

        async def fresh() -> str:
            await trio.sleep(0.1)
            return token

        async with connect(AT, env=world.env, token=fresh) as client:
            assert await served(client)


@pytest.mark.parametrize(
    "settings",
    [
        {"user": "alice", "password": "wrong"},
        {"user": "bob", "password": "pencil"},
        {"token": TOKEN_OF_ALICE},
    ],
)
async def test_wrong_credentials_fail_at_once_in_one_line_without_secrets(
    autojump_clock: MockClock, settings: dict[str, str]
) -> None:
    world = private_world(autojump_clock)
    async with client_of(world) as admin:
        await admin.security.create_user("alice", "pencil")
        began = trio.current_time()
        with pytest.raises(AuthenticationFailedError) as raised:
            async with connect(AT, env=world.env, **settings):  # type: ignore[arg-type]
                pass
    assert trio.current_time() - began < 5
    assert str(raised.value).startswith("authentication failed; check user and password")
    assert ITERATIONS == 600_000
