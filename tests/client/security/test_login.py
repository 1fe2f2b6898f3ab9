"""Logins of a client: renewals under load, new connections, fresh tokens and what is never told."""

# Reads private state of brokers and clients.
# pyright: reportPrivateUsage=false

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.broker.security.logins import TOKEN_OF_ALICE, change, with_alice
from tests.broker.world import ADDRESS, VirtualClock, World
from tests.client.clients import client_of
from tidelog.broker.server import Broker
from tidelog.client.client import Client, connect
from tidelog.client.config import ClientConfig
from tidelog.client.security.settings import connection_settings
from tidelog.coordinator.security.commands import RemoveToken
from tidelog.wire.env.real.user_files import UserFiles
from tidelog.wire.errors import (
    AuthenticationFailedError,
    AuthenticationRequiredError,
    ConfigError,
    TidelogError,
)
from tidelog.wire.security.token import parse_token

AT = "{}:{}".format(*ADDRESS)


@asynccontextmanager
async def secured(clock: MockClock) -> AsyncGenerator[tuple[World, Broker, str]]:
    """Run a broker that requires authentication; return a token of alice as well."""
    world = World(clock)
    world.network.is_encrypted = True
    async with world.broker(authentication="required") as broker:
        await with_alice(broker)
        yield world, broker, TOKEN_OF_ALICE


async def test_a_client_without_credentials_is_told_what_to_set(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, _, _):
        with pytest.raises(AuthenticationRequiredError, match="set user and password, a token"):
            async with connect(AT, env=world.env):
                pass


async def test_every_new_connection_proves_the_identity(autojump_clock: MockClock) -> None:
    async with (
        secured(autojump_clock) as (world, broker, token),
        connect(AT, env=world.env, token=token) as client,
    ):
        await client.admin.create_topic("orders")
        for connection in list(broker._acceptor.connections):
            connection.give_up("a test")
        async with client.producer() as producer:
            await producer.send("orders", b"after a lost connection")
        assert {str(each.principal) for each in broker._acceptor.connections} == {"user:alice"}


def short_tokens(client: Client, *, lifetime_s: float, taken: list[str]) -> Callable[[], object]:
    """Return a source of tokens that end soon, each created on request."""

    async def fresh() -> str:
        taken.append(await client.security.create_token("alice", expires_in=lifetime_s))
        return taken[-1]

    return fresh


async def test_a_renewal_under_load_fails_no_request(autojump_clock: MockClock) -> None:
    taken: list[str] = []
    async with (
        secured(autojump_clock) as (world, _, token),
        connect(AT, env=world.env, token=token) as admin,
    ):
        await admin.admin.create_topic("orders")
        source = short_tokens(admin, lifetime_s=10, taken=taken)
        async with connect(AT, env=world.env, token=source) as client:  # type: ignore[arg-type]
            read: list[bytes] = []

            async def consume() -> None:
                async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
                    async for record in consumer.records():
                        read.append(record.value or b"")
                        if len(read) == 300:
                            return

            async with trio.open_nursery() as nursery:
                nursery.start_soon(consume)
                async with client.producer() as producer:
                    for number in range(300):
                        await producer.send("orders", b"%d" % number)
                        await trio.sleep(0.3)

            assert read == [b"%d" % number for number in range(300)]
            statistics = client.statistics()
            assert statistics.connections.reconnects == 0
            assert statistics.connections.closed == 0
            errors = {
                api_: each.errors for api_, each in statistics.requests.items() if each.errors
            }
            assert errors == {}
            assert 9 <= len(taken) <= 14, "90 s of tokens of 10 s, renewed after 8"
            assert all(parse_token(each) for each in taken)
    assert world.told("client.renewal_failed") == []


@pytest.mark.parametrize("hours", [-1, 1])
async def test_the_clock_of_the_client_does_not_matter_for_renewals(
    autojump_clock: MockClock, hours: int
) -> None:
    taken: list[str] = []
    wrong = VirtualClock()
    wrong.offset_ms += hours * 3_600_000
    async with (
        secured(autojump_clock) as (world, _, token),
        connect(AT, env=world.env, token=token) as admin,
    ):
        source = short_tokens(admin, lifetime_s=10, taken=taken)
        env = replace(world.env, clock=wrong)
        async with connect(AT, env=env, token=source) as client:  # type: ignore[arg-type]
            await trio.sleep(60)
            assert client.statistics().connections.reconnects == 0
    assert 6 <= len(taken) <= 10, "60 s of tokens of 10 s, renewed after 8"


async def test_a_failed_renewal_is_tried_again_before_the_end(autojump_clock: MockClock) -> None:
    taken: list[str] = []
    async with (
        secured(autojump_clock) as (world, _, token),
        connect(AT, env=world.env, token=token) as admin,
    ):
        fresh = short_tokens(admin, lifetime_s=60, taken=taken)
        failures = [RuntimeError("no answer from the secret service at a secret place")] * 2

        async def sometimes() -> object:
            if taken and failures:
                raise failures.pop()
            return await fresh()  # type: ignore[misc]

        async with connect(AT, env=world.env, token=sometimes) as client:  # type: ignore[arg-type]
            await trio.sleep(200)
            await client.admin.list_topics()
            assert client.statistics().connections.reconnects == 0
        reported = world.told("client.renewal_failed")
        assert len(reported) == 2
        assert reported[0]["reason"] == (
            "the token callable raised RuntimeError; the log of the program may say more"
        )


async def test_a_source_without_a_token_fails_the_connection(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, _, _):
        for wrong in (lambda: "", lambda: 7, lambda: None):
            with pytest.raises(AuthenticationFailedError, match="must return a token, not"):
                async with connect(AT, env=world.env, token=wrong):  # type: ignore[arg-type]
                    pass


async def test_a_token_file_that_is_gone_for_a_while_ends_no_client(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    async with secured(autojump_clock) as (world, broker, token):
        file.write_text(token, encoding="utf-8")
        files = UserFiles({"TIDELOG_TOKEN_FILE": str(file)})
        config = connection_settings(ClientConfig(), files).config
        async with connect(AT, env=world.env, config=config) as client:
            await client.admin.create_topic("orders")
            file.unlink()
            for connection in list(broker._acceptor.connections):
                connection.give_up("a test")
            with pytest.raises(AuthenticationFailedError, match=f"cannot read {file}: No such"):
                await client.admin.list_topics()
            async with client.producer() as producer, trio.open_nursery() as nursery:
                nursery.start_soon(producer.send, "orders", b"later")
                await trio.sleep(5)
                file.write_text(token, encoding="utf-8")
            assert await client.admin.list_topics() == ["orders"]


async def test_a_text_that_no_token_is_fails_the_connection_and_is_not_told(
    autojump_clock: MockClock,
) -> None:
    async with secured(autojump_clock) as (world, _, _):
        for wrong in ("tdl_\udcff", lambda: "geheim \N{LATIN SMALL LETTER U WITH DIAERESIS}"):
            with pytest.raises(AuthenticationFailedError, match="other than ASCII") as raised:
                async with connect(AT, env=world.env, token=wrong):
                    pass
            assert "geheim" not in str(raised.value)


async def test_after_a_revocation_calls_fail_with_the_reason(autojump_clock: MockClock) -> None:
    async with (
        secured(autojump_clock) as (world, broker, token),
        connect(AT, env=world.env, token=token) as client,
    ):
        await client.admin.list_topics()
        await change(broker, RemoveToken("0123456789ab"))
        with pytest.raises(AuthenticationFailedError, match="authentication failed"):
            await client.admin.list_topics()


async def test_credentials_never_leave_without_tls(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, _, token):
        world.network.is_encrypted = False
        for settings in ({"token": token}, {"user": "alice", "password": "pencil"}):
            with pytest.raises(AuthenticationFailedError, match="broker:8433 is reached without"):
                async with connect(AT, env=world.env, **settings):  # type: ignore[arg-type]
                    pass


async def test_a_password_is_salted_once_for_all_connections(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    world.network.is_encrypted = True
    async with client_of(world) as admin:
        await admin.security.create_user("alice", "pencil")
        async with connect(AT, env=world.env, user="alice", password="pencil") as client:
            logins = client._cluster._connections._logins
            assert logins is not None
            assert len(logins._salted) == 1
            await admin.security.set_password("alice", "pencil")  # Another salt.
            await client.admin.list_topics()
            assert len(logins._salted) == 1


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"password": "a secret"}, "password needs user, the name that it proves"),
        ({"user": "alice", "password": "a secret", "token": "a secret"}, "exclude each other"),
        ({"token": ""}, "must not be empty"),
        ({"user": "alice", "password": ""}, "must not be empty"),
        ({"token": 7}, "must be a text or a callable"),
    ],
)
def test_contradictions_are_refused_without_secrets(settings: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        ClientConfig(**settings)  # type: ignore[arg-type]
    assert "a secret" not in str(raised.value)


def test_a_config_does_not_show_its_secrets() -> None:
    config = ClientConfig(user="alice", password="a secret")
    assert "a secret" not in repr(config)
    assert "a secret" not in str(config)
    assert "another" not in repr(ClientConfig(token="another secret"))


async def test_nothing_secret_is_logged_or_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = ("a secret password", "another secret")
    told: list[str] = []
    async with secured(autojump_clock) as (world, _, token):
        for settings in (
            {"user": "alice", "password": secrets[0]},
            {"token": secrets[1]},
            {"token": token},
        ):
            try:
                async with connect(AT, env=world.env, **settings) as client:  # type: ignore[arg-type]
                    told += [repr(client), repr(vars(client._cluster)), repr(client.statistics())]
            except TidelogError as error:
                told += [repr(error), *getattr(error, "__notes__", ())]
    told += [repr(world.events), caplog.text]
    for secret in (*secrets, token.rpartition("_")[2]):
        assert all(secret not in text for text in told)
