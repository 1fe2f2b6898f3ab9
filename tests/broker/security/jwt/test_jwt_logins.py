"""Logins by JWT at a broker: keys that come late, change and stay away, and tokens that end."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import final

import pytest
import trio
from joserfc.jwk import ECKey
from trio.testing import MockClock

from tests.broker.security.access_world import administrator, features_known, grant, revoke
from tests.broker.security.gateways import impersonate, with_key
from tests.broker.security.jwt.providers import (
    AUDIENCE,
    ISSUER,
    RULES,
    Provider,
    claims,
    published,
    signed,
)
from tests.broker.world import World, config, settle
from tests.cluster_secret import SECRET
from tidelog.broker.security.jwt.jwt_logins import JwtLogins
from tidelog.broker.security.jwt.jwt_verifier import CLOCK_SKEW_S
from tidelog.broker.security.jwt.refresh_schedule import REFRESH_S, UNKNOWN_KEY_S
from tidelog.broker.security.operator_inputs import OperatorInputs
from tidelog.broker.server import Broker, open_broker
from tidelog.wire.errors import (
    AuthenticationFailedError,
    AuthenticationRequiredError,
    BrokerError,
    BrokerNotReadyError,
    ConnectionLostError,
)
from tidelog.wire.messages.handshake import AuthenticateReply, AuthenticateRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection, open_rpc

SETTINGS = {
    "authentication": "required",
    "jwt_issuer": ISSUER,
    "jwt_audience": AUDIENCE,
    "jwt_keys": "https://login.example.com/keys",
    "jwt_roles_claim": "roles",
}


@final
class KeyServer:
    """The answers of a provider to requests for its keys."""

    def __init__(self, provider: Provider) -> None:
        """Answer with the keys of `provider`."""
        self.provider = provider
        self.count = 0
        self.failure: Exception | None = None
        self.answer: bytes | None = None
        self.may_answer = trio.Event()
        self.may_answer.set()

    async def __call__(self) -> bytes:
        """Return the key set."""
        self.count += 1
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        return self.provider.jwks() if self.answer is None else self.answer


@asynccontextmanager
async def broker_of(world: World, keys: KeyServer, **settings: object) -> AsyncGenerator[Broker]:
    async with open_broker(
        config(**{**SETTINGS, **settings}),
        world.env,
        world.disk,
        secret=SECRET,
        inputs=OperatorInputs(fetch_jwt_keys=keys),
    ) as broker:
        await settle()
        yield broker


@asynccontextmanager
async def client_of(world: World) -> AsyncGenerator[RpcConnection]:
    """Connect as a client."""
    async with open_rpc(
        world.network, "broker", 8433, client_id="test", client_version="0"
    ) as connection:
        yield connection


async def login(connection: RpcConnection, token: bytes) -> AuthenticateReply:
    return await connection.ask(api.AUTHENTICATE, AuthenticateRequest("JWT", token))


async def is_served(connection: RpcConnection) -> bool:
    try:
        await connection.ask(api.METADATA, MetadataRequest(None))
    except AuthenticationRequiredError:
        return False
    return True


def token_of(
    world: World, provider: Provider, lasts_s: float = 600, *, kid: str = "ec", **changes: object
) -> bytes:
    now_s = world.clock.now_ms() / 1000
    return provider.token(kid, "ES256", exp=now_s + lasts_s, nbf=now_s, **changes)


def world_of(clock: MockClock) -> World:
    """Return a machine whose network others cannot read."""
    world = World(clock)
    world.network.is_encrypted = True
    return world


@pytest.fixture
def keys() -> KeyServer:
    return KeyServer(Provider())


async def test_a_token_opens_a_connection(autojump_clock: MockClock, keys: KeyServer) -> None:
    world = world_of(autojump_clock)
    async with broker_of(world, keys), client_of(world) as client:
        assert not await is_served(client)
        reply = await login(client, token_of(world, keys.provider, 600.0))

        assert (reply.is_complete, reply.principal) == (True, "user:alice")
        assert reply.expires_at_ms is not None
        assert await is_served(client)
    assert keys.count == 1


async def test_a_refused_token_gets_one_text_and_the_log_has_the_reason(
    autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    texts: set[str] = set()
    async with broker_of(world, keys):
        for token in (
            token_of(world, keys.provider, aud="other"),
            token_of(world, keys.provider, -3600),
            b"noise",
        ):
            async with client_of(world) as client:
                with pytest.raises(AuthenticationFailedError) as refused:
                    await login(client, token)
                texts.add(str(refused.value))
                assert not await is_served(client)

    assert len(texts) == 1
    reasons = [each["reason"] for each in world.told("jwt_refused")]
    assert reasons == [
        "its aud does not have jwt_audience",
        "its exp has passed, or is missing",
        "it is no signed JWT",
    ]


async def test_the_log_has_a_reason_once_a_minute(
    autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    async with broker_of(world, keys):
        for _ in range(3):
            async with client_of(world) as client:
                with pytest.raises(AuthenticationFailedError):
                    await login(client, b"noise")

    assert len(world.told("jwt_refused")) == 1


async def test_no_connection_outlives_its_token(autojump_clock: MockClock, keys: KeyServer) -> None:
    world = world_of(autojump_clock)
    async with broker_of(world, keys), client_of(world) as client:
        await login(client, token_of(world, keys.provider, lasts_s=0))
        await trio.sleep(CLOCK_SKEW_S - 1)
        assert await is_served(client)
        await trio.sleep(5)
        with pytest.raises((BrokerError, ConnectionLostError)):
            await client.ask(api.METADATA, MetadataRequest(None))


async def test_a_later_token_renews_the_connection(
    autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    async with broker_of(world, keys), client_of(world) as client:
        for _ in range(4):
            await login(client, token_of(world, keys.provider, lasts_s=0))
            await trio.sleep(CLOCK_SKEW_S - 10)
        assert await is_served(client)


async def test_a_front_acts_for_no_user_with_a_token_that_has_lost_the_role(
    autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    async with (
        broker_of(world, keys, authorization="enforce") as broker,
        administrator(world, broker) as admin,
        client_of(world) as front,
    ):
        await features_known(admin)
        key = await with_key(broker)
        await grant(admin, "role:front impersonate cluster")
        await login(front, token_of(world, keys.provider, sub="front", roles=["front"]))
        await impersonate(front, key)
        await login(front, token_of(world, keys.provider, sub="front", roles=["front", "other"]))

        with pytest.raises(AuthenticationFailedError, match="may not act for user:alice any more"):
            await login(front, token_of(world, keys.provider, sub="front", roles=["other"]))


async def test_a_front_keeps_the_rights_of_its_newest_token(
    autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    async with (
        broker_of(world, keys, authorization="enforce") as broker,
        administrator(world, broker) as admin,
        client_of(world) as front,
    ):
        await features_known(admin)
        key = await with_key(broker)
        await grant(admin, "role:old impersonate cluster", "role:new impersonate cluster")
        for role in ("old", "new"):
            await login(front, token_of(world, keys.provider, sub="front", roles=[role]))
            if role == "old":
                await impersonate(front, key)
        await revoke(admin, "role:old impersonate cluster")
        await front.ask(api.METADATA, MetadataRequest(None))
        await revoke(admin, "role:new impersonate cluster")
        with pytest.raises(ConnectionLostError):
            await front.ask(api.METADATA, MetadataRequest(None))


async def test_a_token_of_another_user_does_not_take_the_connection_over(
    autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    async with broker_of(world, keys), client_of(world) as client:
        await login(client, token_of(world, keys.provider))
        with pytest.raises(AuthenticationFailedError, match="belongs to user:alice"):
            await login(client, token_of(world, keys.provider, sub="bob"))


# The keys, without a broker around them.


@asynccontextmanager
async def logins_of(world: World, keys: KeyServer) -> AsyncGenerator[JwtLogins]:
    """Run the mechanism alone."""
    logins = JwtLogins(world.env, RULES, keys)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logins.run)
        await settle()
        yield logins
        nursery.cancel_scope.cancel()


async def test_a_new_key_is_fetched_when_a_token_has_it(
    autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    async with logins_of(world, keys) as logins:
        keys.provider.keys["next"] = ECKey.generate_key("P-256")
        await trio.sleep(60)
        assert await logins.verify(token_of(world, keys.provider, kid="next"))

    assert keys.count == 2


async def test_strangers_with_unknown_keys_cause_few_fetches(
    autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    own = ECKey.generate_key("P-256")
    async with logins_of(world, keys) as logins:
        for number in range(1_000):
            forged = signed(claims(), {"alg": "ES256", "kid": f"k{number}"}, own)
            with pytest.raises(AuthenticationFailedError):
                await logins.verify(forged)
        assert keys.count == 1
        await trio.sleep(UNKNOWN_KEY_S + 1)
        assert keys.count == 2


async def test_the_last_keys_serve_while_the_provider_is_down(
    autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    async with logins_of(world, keys) as logins:
        keys.failure = OSError("connection refused")
        await trio.sleep(24 * 3600)
        assert await logins.verify(token_of(world, keys.provider))
        keys.failure = None
        await trio.sleep(61)

    failures = world.told("jwt_keys_not_fetched")
    assert (failures[0]["reason"], failures[0]["has_keys"]) == ("connection refused", True)
    assert len(failures) <= 24 * 60 + 10
    assert len(world.told("jwt_keys_fetched")) == 2


@pytest.mark.parametrize("answer", [b"", b"<html>", b'{"keys": []}', b'{"keys": [{"kty": "oct"}]}'])
async def test_junk_does_not_replace_the_keys(
    answer: bytes, autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    async with logins_of(world, keys) as logins:
        keys.answer = answer
        await trio.sleep(3600)
        assert await logins.verify(token_of(world, keys.provider))

    assert world.told("jwt_keys_not_fetched")


async def test_a_key_that_the_provider_has_withdrawn_verifies_nothing(
    autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    async with logins_of(world, keys) as logins:
        stolen = token_of(world, keys.provider, 3600)
        keys.answer = json.dumps({"keys": [published("rsa", keys.provider.keys["rsa"])]}).encode()
        await trio.sleep(REFRESH_S + 1)
        with pytest.raises(AuthenticationFailedError):
            await logins.verify(stolen)


async def test_without_any_keys_a_login_may_be_tried_again(
    autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    keys.failure = OSError("no route to host")
    async with logins_of(world, keys) as logins:
        with pytest.raises(BrokerNotReadyError, match="keys of the identity provider"):
            await logins.verify(token_of(world, keys.provider))
        keys.failure = None
        await trio.sleep(60)
        assert await logins.verify(token_of(world, keys.provider))


async def test_logins_wait_for_the_first_keys(autojump_clock: MockClock, keys: KeyServer) -> None:
    world = world_of(autojump_clock)
    keys.may_answer = trio.Event()
    async with logins_of(world, keys) as logins, trio.open_nursery() as nursery:
        nursery.start_soon(logins.verify, token_of(world, keys.provider))
        await settle()
        keys.may_answer.set()


async def test_a_provider_that_never_answers_delays_no_start_and_no_stop(
    autojump_clock: MockClock, keys: KeyServer
) -> None:
    world = world_of(autojump_clock)
    keys.may_answer = trio.Event()
    async with broker_of(world, keys):
        assert world.told("broker_started")
        await trio.sleep(11)

    assert world.told("jwt_keys_not_fetched")[0]["reason"] == "no answer within 10 s"
