"""Gateways at a real broker: signing keys, proofs, grants and ends of impersonation."""

import hmac
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.broker.audit.audit_records import audit_records
from tests.broker.broker_requests import batch_of, create_topic, produce
from tests.broker.security.access_world import (
    administrator,
    client_of,
    features_known,
    grant,
    revoke,
    rule,
    set_role,
)
from tests.broker.security.gateways import (
    KEY_ID,
    SCOPE,
    TOKEN_OF_FRONT,
    get_signing_key,
    impersonate,
    key_of,
    signed_text,
    with_front,
    with_key,
)
from tests.broker.security.logins import change, login_by_token, with_alice
from tests.broker.world import START_MS, World
from tests.cluster_secret import SECRET
from tests.simulation.machine.disk_contents import contents
from tidelog.broker.audit.event import AuditKind
from tidelog.broker.audit.record import encode_record
from tidelog.broker.server import Broker
from tidelog.coordinator.metadata.commands import Command
from tidelog.coordinator.security.commands import (
    EnableAccessKey,
    RemoveAccessKey,
    RemoveToken,
    RemoveUser,
    SetQuota,
)
from tidelog.wire.config.quota_rates import QuotaRate
from tidelog.wire.errors import (
    AuthenticationExpiredError,
    AuthenticationFailedError,
    BrokerError,
    ConnectionLostError,
    InvalidRequestError,
    NotAuthorizedError,
)
from tidelog.wire.messages.access import AlterAccessRequest
from tidelog.wire.messages.access_keys import AccessKeyToCreate, AlterAccessKeysRequest
from tidelog.wire.messages.cluster_admin import DescribeClusterRequest
from tidelog.wire.messages.keys import ListKeysRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.users import AlterUsersRequest
from tidelog.wire.protocol import api
from tidelog.wire.security.access_key import AccessKeyName, SigningScope, root_of, secret_of
from tidelog.wire.transport.rpc import RpcConnection


@asynccontextmanager
async def gateway_world(
    clock: MockClock, **settings: object
) -> AsyncGenerator[tuple[World, Broker, RpcConnection]]:
    """Run a broker with the user alice, an access key, and a front that may act for users."""
    world = World(clock)
    world.network.is_encrypted = True
    async with (
        world.broker(authorization="enforce", **settings) as broker,
        administrator(world, broker) as admin,
    ):
        await features_known(admin)
        await with_front(broker)
        await with_key(broker)
        await grant(admin, "user:front impersonate cluster", "user:alice write topic orders")
        yield world, broker, admin


def sign(key: bytes, signed: bytes) -> bytes:
    return hmac.digest(key, signed, "sha256")


async def test_a_front_gets_a_signing_key_only_with_a_request_that_the_user_has_signed(
    autojump_clock: MockClock,
) -> None:
    async with gateway_world(autojump_clock) as (world, broker, _), world.client() as front:
        await login_by_token(front, TOKEN_OF_FRONT)
        key, signed = key_of("alice").key, signed_text()
        signature = sign(key, signed)

        found = await get_signing_key(front, signed, signature)
        assert (found.is_known, found.signing_key, found.user) == (True, key, "alice")
        assert key.hex() not in repr(found)
        assert repr(key) not in repr(found)

        wrong = await get_signing_key(front, signed, bytes(32))
        assert (wrong.is_known, wrong.signing_key, wrong.user) == (True, b"", "")
        unknown = await get_signing_key(front, signed, signature, key_id="TDLABBBBBBBBBBBBBBBB")
        assert (unknown.is_known, unknown.signing_key) == (False, b"")
        await change(broker, EnableAccessKey(KEY_ID, is_enabled=False))
        assert not (await get_signing_key(front, signed, signature)).is_known


@pytest.mark.parametrize(
    "signed",
    [
        signed_text(START_MS + 20 * 60_000),
        signed_text(START_MS - 8 * 24 * 3_600_000),
        signed_text(scope=SCOPE._replace(region="eu-west-1")),
        signed_text() + b"\n",
        b"",
        b"\xff" * 100,
    ],
    ids=["future", "old", "region", "form", "empty", "bytes"],
)
async def test_a_signed_request_of_another_time_or_scope_gives_no_key(
    autojump_clock: MockClock, signed: bytes
) -> None:
    async with gateway_world(autojump_clock) as (world, _, _), world.client() as front:
        await login_by_token(front, TOKEN_OF_FRONT)
        with pytest.raises(InvalidRequestError, match="not of this time and scope"):
            await get_signing_key(front, signed, sign(key_of("alice").key, signed))


async def test_a_front_has_the_grants_of_the_user_and_not_its_own(
    autojump_clock: MockClock,
) -> None:
    async with gateway_world(autojump_clock) as (world, _, admin), world.client() as front:
        topic = await create_topic(admin)
        await grant(admin, "user:front describe cluster")
        await login_by_token(front, TOKEN_OF_FRONT)
        await front.ask(api.DESCRIBE_CLUSTER, DescribeClusterRequest(with_partitions=False))
        with pytest.raises(BrokerError):
            await produce(front, topic, batch_of(b"1"))

        reply = await impersonate(front, key_of("alice"))
        assert reply.principal == "user:alice"
        await produce(front, topic, batch_of(b"1"))
        with pytest.raises(NotAuthorizedError, match="user:alice may not describe cluster"):
            await front.ask(api.DESCRIBE_CLUSTER, DescribeClusterRequest(with_partitions=False))


async def test_a_front_administers_nothing_for_an_administrator(
    autojump_clock: MockClock,
) -> None:
    async with gateway_world(autojump_clock) as (world, _, admin), world.client() as front:
        topic = await create_topic(admin)
        await set_role(admin, "admin", "alice")
        await login_by_token(front, TOKEN_OF_FRONT)
        await impersonate(front, key_of("alice"))
        await produce(front, topic, batch_of(b"1"))
        for request in (
            front.ask(api.ALTER_ACCESS, AlterAccessRequest([rule("user:front * topic *")])),
            front.ask(api.ALTER_USERS, AlterUsersRequest([], ["root"], [], [])),
            front.ask(api.LIST_KEYS, ListKeysRequest()),
            get_signing_key(front, signed_text(), bytes(32)),
        ):
            with pytest.raises(NotAuthorizedError, match="through a gateway; connect to the bro"):
                await request


async def test_a_front_uses_up_the_quota_of_the_user_and_not_its_own(
    autojump_clock: MockClock,
) -> None:
    async with gateway_world(autojump_clock) as (world, broker, admin), world.client() as front:
        topic = await create_topic(admin)
        await change(broker, SetQuota("user:alice", {"produce_bytes_per_s": 1_000}))
        await login_by_token(front, TOKEN_OF_FRONT)
        await impersonate(front, key_of("alice"))
        await produce(front, topic, batch_of(b"x" * 5_000))
        throttled_s = front.throttled_until(QuotaRate.PRODUCE_BYTES) - trio.current_time()
        assert throttled_s > 1


async def test_without_the_action_a_principal_acts_for_no_other(
    autojump_clock: MockClock,
) -> None:
    async with gateway_world(autojump_clock) as (world, broker, _):
        await with_alice(broker)
        async with world.client() as other, client_of(world, broker, "bob") as bob:
            for client in (other, bob):
                with pytest.raises(NotAuthorizedError, match="may not impersonate cluster"):
                    await impersonate(client, key_of("alice"))
                with pytest.raises(NotAuthorizedError, match="may not impersonate cluster"):
                    await get_signing_key(client, signed_text(), bytes(32))


async def test_a_wrong_or_old_proof_is_refused_and_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    async with gateway_world(autojump_clock) as (world, broker, _), world.client() as front:
        await login_by_token(front, TOKEN_OF_FRONT)
        key = key_of("alice")
        long_ago = SigningScope("20200101", "us-east-1", "sqs")
        await with_key(broker, "bob", "TDLABBBBBBBBBBBBBBBB")
        for wrong in (
            key._replace(key=bytes(32)),
            key._replace(access_key_id="TDLABBBBBBBBBBBBBBBB"),
            key._replace(scope=SCOPE._replace(region="eu-west-1")),
            key_of("alice", scope=long_ago),
            key._replace(access_key_id="TDLACCCCCCCCCCCCCCCC"),
        ):
            with pytest.raises(AuthenticationFailedError, match="proof is wrong or old"):
                await impersonate(front, wrong)
        for off_ms in (-16 * 60_000, 16 * 60_000):
            with pytest.raises(AuthenticationFailedError, match="proof is wrong or old"):
                await impersonate(front, key, time_ms=START_MS + off_ms)
        (connection,) = (
            each
            for each in vars(broker)["_acceptor"].connections
            if str(each.principal) == "user:front"
        )
        assert connection.identity.impersonation is None


ENDS: list[Command | str] = [
    EnableAccessKey(KEY_ID, is_enabled=False),
    RemoveAccessKey(KEY_ID),
    RemoveUser("alice"),
    RemoveUser("front"),
    RemoveToken("fedcba987654"),
    "user:front impersonate cluster",
]


@pytest.mark.parametrize("end", ENDS, ids=[type(each).__name__ for each in ENDS])
async def test_a_front_acts_no_longer_than_its_identity_its_action_the_key_and_the_user(
    autojump_clock: MockClock, end: Command | str
) -> None:
    async with gateway_world(autojump_clock) as (world, broker, admin), world.client() as front:
        await login_by_token(front, TOKEN_OF_FRONT)
        await impersonate(front, key_of("alice"))
        await front.ask(api.METADATA, MetadataRequest(None))
        if isinstance(end, str):
            await revoke(admin, end)
        else:
            await change(broker, end)
        with pytest.raises(ConnectionLostError):
            await front.ask(api.METADATA, MetadataRequest(None))


async def test_a_front_renews_itself_without_acting_for_itself_in_between(
    autojump_clock: MockClock,
) -> None:
    async with gateway_world(autojump_clock) as (world, broker, _), world.client() as front:
        await login_by_token(front, TOKEN_OF_FRONT)
        await impersonate(front, key_of("alice"))
        reply = await login_by_token(front, TOKEN_OF_FRONT)
        assert reply.principal == "user:front"
        (connection,) = (
            each
            for each in vars(broker)["_acceptor"].connections
            if str(each.principal) == "user:alice"
        )
        assert str(connection.origin.actor) == "user:front"
        assert (await impersonate(front, key_of("alice"))).principal == "user:alice"

        bob = await with_key(broker, "bob", "TDLABBBBBBBBBBBBBBBB")
        with pytest.raises(AuthenticationFailedError, match="acts for user:alice; open another"):
            await impersonate(front, bob)
        await with_alice(broker)
        with pytest.raises(AuthenticationFailedError, match="the connection belongs to user:front"):
            await login_by_token(front)
        assert str(connection.principal) == "user:alice"


async def test_an_impersonation_ends_when_no_request_of_its_day_is_valid_any_more(
    autojump_clock: MockClock,
) -> None:
    async with gateway_world(autojump_clock) as (world, _, _), world.client() as front:
        await login_by_token(front, TOKEN_OF_FRONT)
        lifetime_ms = (await impersonate(front, key_of("alice"))).lifetime_ms
        days = lifetime_ms / (24 * 3_600_000)
        assert 7 < days <= 8 + 1 / 96
        world.clock.offset_ms += lifetime_ms + 1
        with pytest.raises((AuthenticationExpiredError, ConnectionLostError)):
            await front.ask(api.METADATA, MetadataRequest(None))


async def test_secrets_go_over_no_connection_that_others_can_read(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with (
        world.broker() as broker,
        administrator(world, broker) as admin,
        client_of(world, broker, "front") as front,
    ):
        await features_known(admin)
        key, signed = await with_key(broker), signed_text()
        wanted = AlterAccessKeysRequest([AccessKeyToCreate(KEY_ID, "alice", bytes(32))])
        for asked in (
            admin.ask(api.ALTER_ACCESS_KEYS, wanted),
            get_signing_key(front, signed, sign(key.key, signed)),
            impersonate(front, key),
        ):
            with pytest.raises(AuthenticationFailedError, match="over TLS or on its own machine"):
                await asked


async def test_no_disk_log_or_audit_has_a_secret_and_the_audit_names_both(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway_world(autojump_clock, audit="on") as (world, broker, admin):
        await grant(admin, "user:auditor audit cluster")
        wanted = AccessKeyToCreate("TDLADDDDDDDDDDDDDDDD", "alice", bytes(32), description="app")
        request = AlterAccessKeysRequest([wanted])
        (created,) = (await admin.ask(api.ALTER_ACCESS_KEYS, request)).created
        (again,) = (await admin.ask(api.ALTER_ACCESS_KEYS, request)).created
        assert created == again
        name = AccessKeyName(created.access_key_id, "alice", "")
        assert created.secret == secret_of(root_of(SECRET), name, bytes(32))
        other = AccessKeyToCreate("TDLADDDDDDDDDDDDDDDD", "alice", bytes([1] * 32))
        with pytest.raises(InvalidRequestError, match="exists; draw another id"):
            await admin.ask(api.ALTER_ACCESS_KEYS, AlterAccessKeysRequest([other]))
        async with world.client() as front, client_of(world, broker, "auditor") as auditor:
            await login_by_token(front, TOKEN_OF_FRONT)
            signed, key = signed_text(), key_of("alice")
            await get_signing_key(front, signed, sign(key.key, signed))
            await get_signing_key(front, signed, bytes(32))
            await impersonate(front, key)
            with pytest.raises(NotAuthorizedError):
                await front.ask(api.DESCRIBE_CLUSTER, DescribeClusterRequest(with_partitions=False))
            await trio.sleep(62)
            records = await audit_records(auditor)

    denial = next(each for each in records if each.kind is AuditKind.DENIAL)
    assert (denial.principal, denial.actor) == ("user:alice", "user:front")
    acting = next(each for each in records if each.action == "impersonate")
    assert (acting.principal, acting.actor) == ("user:alice", "user:front")
    assert acting.detail["access_key_id"] == KEY_ID
    failed = next(each for each in records if each.action == "sign")
    assert (failed.principal, failed.result) == ("user:front", "AUTHENTICATION_FAILED")
    made = next(each for each in records if each.action == "user.alter-access-keys")
    assert "TDLADDDDDDDDDDDDDDDD" in made.detail["create.access_key_id"]
    secrets = [created.secret.encode(), key.key, key.key.hex().encode(), SECRET]
    everything = [
        *(data for data in contents(world.disk).values() if data is not None),
        repr(world.events).encode(),
        caplog.text.encode(),
        *(encode_record(each) for each in records),
        repr(created).encode(),
    ]
    for secret in secrets:
        assert not any(secret in each for each in everything)
