"""AUTHENTICATE at a real broker: proofs, failures, replays, renewals, expiry and revocations."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import create_topic, submit
from tests.broker.security.logins import (
    ALICES,
    TOKEN_OF_ALICE,
    ask,
    change,
    credential,
    login_by_password,
    login_by_token,
    with_alice,
)
from tests.broker.world import ADDRESS, START_MS, World, settle
from tests.coordinator.raft_clients import until
from tidelog.broker.server import Broker
from tidelog.coordinator.metadata.commands import Command
from tidelog.coordinator.security.commands import RemoveToken, RemoveUser, SetUser
from tidelog.wire.errors import (
    AuthenticationExpiredError,
    AuthenticationFailedError,
    AuthenticationRequiredError,
    ConnectionLostError,
    InvalidRequestError,
    OverloadedError,
)
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.handshake import AuthenticateRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import UNPROVEN_BYTES_MAX
from tidelog.wire.security.principal import user_principal
from tidelog.wire.security.scram import ITERATIONS, SCRAM_SHA_256, ScramLogin, salted_password
from tidelog.wire.security.token import TOKEN, new_token
from tidelog.wire.transport.rpc import RpcConnection

PROBE = MetadataRequest(None)


@asynccontextmanager
async def secured(clock: MockClock, **settings: object) -> AsyncGenerator[tuple[World, Broker]]:
    """Run a broker that requires authentication, over a network that others cannot read."""
    world = World(clock)
    world.network.is_encrypted = True
    async with world.broker(authentication="required", **settings) as broker:
        await with_alice(broker)
        yield world, broker


async def probe(client: RpcConnection) -> None:
    await client.ask(api.METADATA, PROBE)


async def test_a_client_is_served_after_its_proof_and_not_before(
    autojump_clock: MockClock,
) -> None:
    async with secured(autojump_clock) as (world, broker), world.client() as client:
        with pytest.raises(AuthenticationRequiredError, match="authentication = required"):
            await probe(client)
        reply = await login_by_password(client)
        assert (reply.principal, reply.expires_at_ms) == ("user:alice", None)
        await probe(client)
        (connection,) = broker._acceptor.connections
        assert connection.principal == user_principal("alice")
        assert connection.identity.how == SCRAM_SHA_256


async def test_a_token_proves_its_user_until_the_token_ends(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, broker), world.client() as client:
        await change(broker, RemoveToken("0123456789ab"))
        await with_alice(broker, expires_at_ms=START_MS + 60_000)
        reply = await login_by_token(client)
        assert (reply.principal, reply.expires_at_ms) == ("user:alice", START_MS + 60_000)
        await probe(client)


WRONG: list[tuple[str, bytes]] = [
    (TOKEN, new_token(bytes.fromhex("0123456789ab"), bytes(32)).encode()),
    (TOKEN, new_token(bytes(6), bytes(range(32))).encode()),
    (TOKEN, TOKEN_OF_ALICE.encode()[:-1]),
    (TOKEN, b""),
    (TOKEN, b"\xff\xfe"),
    (TOKEN, b"A" * 30_000),
    (SCRAM_SHA_256, b""),
    (SCRAM_SHA_256, b"\xff\xfe"),
    (SCRAM_SHA_256, b"n,,n=,r=nonce"),
    (SCRAM_SHA_256, b"n,,n=al=zzice,r=nonce"),
    (SCRAM_SHA_256, b"p=tls-unique,,n=alice,r=nonce"),
    (SCRAM_SHA_256, b"n,,n=" + b"a" * 30_000 + b",r=nonce"),
]


@pytest.mark.parametrize(("mechanism", "data"), WRONG)
async def test_all_failures_have_one_text(
    autojump_clock: MockClock, mechanism: str, data: bytes
) -> None:
    async with secured(autojump_clock) as (world, _), world.client() as client:
        with pytest.raises(AuthenticationFailedError) as raised:
            await ask(client, mechanism, data)
        assert str(raised.value) == ("authentication failed; check user and password, or the token")


async def test_an_expired_token_fails_like_an_unknown_one(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, broker), world.client() as client:
        await change(broker, RemoveToken("0123456789ab"))
        await with_alice(broker, expires_at_ms=START_MS)
        with pytest.raises(AuthenticationFailedError, match="authentication failed; check"):
            await login_by_token(client)


async def exchange_of(
    client: RpcConnection, user: str, password: str
) -> tuple[bytes, str, float, float]:
    """Return the challenge for a user, the error and the durations of both answers in seconds."""
    login = ScramLogin(user, b"nonce")
    began = trio.current_time()
    challenge = (await ask(client, SCRAM_SHA_256, login.first())).data
    challenged = trio.current_time()
    by = login.challenge(challenge)
    with pytest.raises(AuthenticationFailedError) as raised:
        await ask(client, SCRAM_SHA_256, login.proof(salted_password(password, by)))
    return challenge, str(raised.value), challenged - began, trio.current_time() - challenged


async def test_an_unknown_user_gets_the_answers_of_a_known_one(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, broker):
        # A user as the command line creates it; the password of it is wrong.
        found = credential("x")
        new = type(found)(found.salt, ITERATIONS, found.stored_key, found.server_key)
        await change(broker, SetUser("carol", new), SetUser("dave", None))
        seen: dict[str, tuple[list[str], str]] = {}
        for user in ("carol", "mallory", "dave"):
            async with world.client() as client:
                challenge, error, before_s, after_s = await exchange_of(client, user, "wrong")
            fields = [part.split("=", 1) for part in challenge.decode().split(",")]
            shape = [f"{name}:{len(value)}" for name, value in fields]
            assert before_s < 3.1
            assert 0.05 <= after_s <= 0.15
            seen[user] = (shape, error)
            assert fields[2] == ["i", str(ITERATIONS)]
            await trio.sleep(60)  # No delay for earlier failures.
        assert seen["carol"] == seen["mallory"] == seen["dave"]


async def test_the_salt_of_an_unknown_user_is_stable_and_its_own(autojump_clock: MockClock) -> None:
    salts: dict[str, set[str]] = {"mallory": set(), "another": set()}
    for _ in range(2):
        async with secured(autojump_clock) as (world, _):
            for user, found in salts.items():
                async with world.client() as client:
                    data = (await ask(client, SCRAM_SHA_256, ScramLogin(user, b"n").first())).data
                found.add(data.decode().split(",")[1])
    assert len(salts["mallory"]) == len(salts["another"]) == 1
    assert salts["mallory"] != salts["another"]


async def test_a_recorded_exchange_proves_nothing(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, _):
        login = ScramLogin("alice", b"nonce")
        async with world.client() as client:
            challenge = (await ask(client, SCRAM_SHA_256, login.first())).data
            proof = login.proof(salted_password(ALICES, login.challenge(challenge)))
            assert (await ask(client, SCRAM_SHA_256, proof)).is_complete
            with pytest.raises(AuthenticationFailedError):
                await ask(client, SCRAM_SHA_256, proof)
        async with world.client() as client:
            again = (await ask(client, SCRAM_SHA_256, login.first())).data
            assert again != challenge
            with pytest.raises(AuthenticationFailedError):
                await ask(client, SCRAM_SHA_256, proof)


async def test_every_cut_and_changed_proof_fails(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, _):
        login = ScramLogin("alice", b"nonce")
        for at in range(0, 80, 7):
            for is_cut in (True, False):
                async with world.client() as client:
                    challenge = (await ask(client, SCRAM_SHA_256, login.first())).data
                    proof = login.proof(salted_password(ALICES, login.challenge(challenge)))
                    rest = b"" if is_cut else bytes([proof[at] ^ 1]) + proof[at + 1 :]
                    changed = proof[:at] + rest
                    with pytest.raises(AuthenticationFailedError):
                        await ask(client, SCRAM_SHA_256, changed)
            await trio.sleep(60)


async def test_a_connection_ends_after_three_failures(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, broker), world.client() as client:
        for _ in range(3):
            with pytest.raises(AuthenticationFailedError):
                await ask(client, TOKEN, b"guess")
        with pytest.raises(ConnectionLostError):
            await probe(client)
        await settle()
        assert broker._acceptor.connections == {}


async def test_guesses_from_one_address_are_slow_and_other_addresses_are_not(
    autojump_clock: MockClock,
) -> None:
    async with secured(autojump_clock) as (world, _):
        began = trio.current_time()
        for _ in range(10):
            async with world.client() as client:
                for _ in range(3):
                    with pytest.raises(AuthenticationFailedError):
                        await ask(client, TOKEN, b"guess")
        took_s = trio.current_time() - began
        assert took_s > 50, "30 guesses"
        async with world.client() as client:  # The right password still works, after a wait.
            began = trio.current_time()
            await login_by_token(client)
            assert trio.current_time() - began < 4


async def test_a_client_with_an_identity_guesses_no_faster(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, _):
        began = trio.current_time()
        for _ in range(15):
            async with world.client() as client:
                await login_by_token(client)
                for _ in range(2):
                    with pytest.raises(AuthenticationFailedError):
                        await ask(client, TOKEN, b"guess")
                # Its own token must not buy further guesses.
                await login_by_token(client)
                with pytest.raises(AuthenticationFailedError):
                    await ask(client, TOKEN, b"guess")
        assert trio.current_time() - began > 100, "45 guesses"


async def test_a_renewal_waits_for_no_failure_of_other_clients(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, _), world.client() as known:
        await login_by_token(known)
        for _ in range(8):
            async with world.client() as client:
                with pytest.raises(AuthenticationFailedError):
                    await ask(client, TOKEN, b"guess")
        began = trio.current_time()
        await login_by_token(known)
        assert trio.current_time() - began < 0.1


async def test_a_login_of_a_client_that_is_gone_leaves_nothing(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, broker):
        for _ in range(8):
            async with world.client() as client:
                with pytest.raises(AuthenticationFailedError):
                    await ask(client, TOKEN, b"guess")
        async with world.client() as client:
            submit(client, api.AUTHENTICATE, AuthenticateRequest(TOKEN, TOKEN_OF_ALICE.encode()))
            await trio.sleep(0.5)
        await trio.sleep(10)
        assert len(broker._identities.sessions) == 0


async def test_many_guesses_at_once_are_refused(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, _), AsyncExitStack() as clients:
        for _ in range(8):
            async with world.client() as client:
                with pytest.raises(AuthenticationFailedError):
                    await ask(client, TOKEN, b"guess")
        open_ = [await clients.enter_async_context(world.client()) for _ in range(40)]
        results: list[str] = []

        async def guess(client: RpcConnection) -> None:
            try:
                await ask(client, TOKEN, b"guess")
            except (AuthenticationFailedError, OverloadedError) as error:
                results.append(type(error).__name__)

        async with trio.open_nursery() as nursery:
            for each in open_:
                nursery.start_soon(guess, each)
        assert results.count("OverloadedError") == 8
        assert results.count("AuthenticationFailedError") == 32


async def test_credentials_need_tls_except_on_the_machine_itself(
    autojump_clock: MockClock,
) -> None:
    async with secured(autojump_clock) as (world, broker):
        world.network.is_encrypted = False
        async with world.client() as client:
            with pytest.raises(AuthenticationFailedError, match="over TLS or from its own machine"):
                await login_by_token(client)
            for each in broker._acceptor.connections:
                each._stream.peer = "127.0.0.1:40000"  # type: ignore[misc]
            await login_by_token(client)


async def test_an_unknown_mechanism_is_named_with_those_there_are(
    autojump_clock: MockClock,
) -> None:
    async with secured(autojump_clock) as (world, _), world.client() as client:
        with pytest.raises(InvalidRequestError, match="'PLAIN'; it has SCRAM-SHA-256, TOKEN"):
            await ask(client, "PLAIN", b"alice")


async def test_a_node_does_not_authenticate(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, _), world.node(2) as node:
        with pytest.raises(InvalidRequestError, match="only clients send AUTHENTICATE"):
            await login_by_token(node)


async def test_one_exchange_is_under_way_at_a_time(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, _), world.client() as client:
        request = api.AUTHENTICATE
        first = submit(client, request, AuthenticateRequest(TOKEN, b"guess"))
        second = submit(client, request, AuthenticateRequest(TOKEN, TOKEN_OF_ALICE.encode()))
        with pytest.raises(InvalidRequestError, match="one AUTHENTICATE at a time"):
            await second.reply()
        with pytest.raises(AuthenticationFailedError):
            await first.reply()


async def test_a_connection_keeps_its_principal(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, broker), world.client() as client:
        await change(broker, SetUser("bob", credential("bobs")))
        await login_by_token(client)
        with pytest.raises(AuthenticationFailedError, match="belongs to user:alice; open another"):
            await login_by_password(client, "bob", "bobs")
        await probe(client)


async def test_requests_are_refused_after_the_end_and_then_the_connection_ends(
    autojump_clock: MockClock,
) -> None:
    async with secured(autojump_clock) as (world, broker), world.client() as client:
        await change(broker, RemoveToken("0123456789ab"))
        await with_alice(broker, expires_at_ms=START_MS + 60_000)
        await login_by_token(client)
        await trio.sleep_until(60.01)
        with pytest.raises(AuthenticationExpiredError, match="user:alice are no longer valid"):
            await probe(client)
        await trio.sleep_until(61.5)
        with pytest.raises(ConnectionLostError):
            await probe(client)
        assert len(broker._identities.sessions) == 0


async def test_a_late_renewal_keeps_the_connection(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, broker), world.client() as client:
        await change(broker, RemoveToken("0123456789ab"))
        await with_alice(broker, expires_at_ms=START_MS + 60_000)
        await login_by_token(client)
        await trio.sleep_until(60.5)
        assert (await login_by_password(client)).expires_at_ms is None
        await trio.sleep_until(300)
        await probe(client)


async def test_a_long_poll_ends_with_its_token(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, broker), world.client() as client:
        await change(broker, RemoveToken("0123456789ab"))
        await with_alice(broker, expires_at_ms=START_MS + 60_000)
        await login_by_token(client)
        place = PartitionFetch(await create_topic(client), 0, 0, 1 << 20)
        poll = submit(client, api.FETCH, FetchRequest(600_000, 1, 1 << 20, [place]))
        with pytest.raises(ConnectionLostError):
            await poll.reply()
        assert 60 <= trio.current_time() <= 60.5


@pytest.mark.parametrize("how", ["user removed", "password changed", "token revoked"])
async def test_a_revocation_ends_the_connections_of_the_credential_alone(
    autojump_clock: MockClock, how: str
) -> None:
    revocations: dict[str, Command] = {
        "user removed": RemoveUser("alice"),
        "password changed": SetUser("alice", credential("another")),
        "token revoked": RemoveToken("0123456789ab"),
    }
    async with (
        secured(autojump_clock) as (world, broker),
        world.client() as by_password,
        world.client() as by_token,
        world.client() as of_bob,
    ):
        await change(broker, SetUser("bob", credential("bobs")))
        await login_by_password(by_password)
        await login_by_token(by_token)
        await login_by_password(of_bob, "bob", "bobs")
        began = trio.current_time()
        await change(broker, revocations[how])
        for client, is_ended in (
            (by_password, how != "token revoked"),
            (by_token, how != "password changed"),
            (of_bob, False),
        ):
            if is_ended:
                with pytest.raises(ConnectionLostError):
                    await probe(client)
            else:
                await probe(client)
        assert trio.current_time() - began < 1


async def test_strangers_send_no_large_frames(autojump_clock: MockClock) -> None:
    async with secured(autojump_clock) as (world, _):
        stranger = await world.raw_client()
        await stranger.introduce()
        request = stranger.request(
            api.METADATA, MetadataRequest(["a" * 249] * (UNPROVEN_BYTES_MAX // 240))
        )
        assert len(request) > UNPROVEN_BYTES_MAX
        await stranger.send(request)
        await until(lambda: bool(world.told("connection_refused")))
        (refused,) = world.told("connection_refused")
        assert f"the limit is {UNPROVEN_BYTES_MAX}" in str(refused["reason"])


async def test_a_stranger_without_a_proof_makes_room_for_others(
    autojump_clock: MockClock,
) -> None:
    async with secured(autojump_clock, max_connections=3) as (world, _):
        for _ in range(3):
            await (await world.raw_client()).introduce()
        async with world.client() as client:
            await login_by_token(client)
            for _ in range(5):
                await (await world.raw_client()).introduce()
            await probe(client)


async def test_a_stranger_that_never_proves_anything_is_disconnected(
    autojump_clock: MockClock,
) -> None:
    async with secured(autojump_clock) as (world, broker):
        stranger = await world.raw_client()
        await stranger.introduce()
        assert len(broker._acceptor.connections) == 1
        await trio.sleep(40)
        assert len(broker._acceptor.connections) == 0


async def test_failures_are_audited_with_the_claimed_name_and_no_secret(
    autojump_clock: MockClock,
) -> None:
    async with secured(autojump_clock) as (world, _):
        async with world.client() as client:
            await exchange_of(client, "alice", "wrong secret")
        reported = repr(world.events)
        assert "an authentication by SCRAM-SHA-256 failed" in reported
        for secret in ("wrong secret", ALICES, TOKEN_OF_ALICE):
            assert secret not in reported


async def test_optional_authentication_serves_both(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    world.network.is_encrypted = True
    async with world.broker() as broker, world.client() as known, world.client() as anonymous:
        await with_alice(broker)
        await login_by_token(known)
        await probe(known)
        await probe(anonymous)
        assert {str(each.principal) for each in broker._acceptor.connections} == {
            "user:alice",
            "anonymous",
        }


def test_the_address_of_the_tests_is_no_loopback() -> None:
    assert ADDRESS[0] == "broker"
