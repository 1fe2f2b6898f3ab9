"""Tests of the audit of identities: logins, denials, grants and usage by user, without secrets."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.audit.audit_records import audit_records
from tests.broker.broker_requests import batch_of, create_topic, fetch_all, produce, submit
from tests.broker.security.access_world import administrator, client_of, features_known, grant
from tests.broker.security.logins import (
    ALICES,
    BY,
    TOKEN_OF_ALICE,
    credential,
    login_by_password,
    login_by_token,
    with_alice,
)
from tests.broker.world import World
from tidelog.broker.audit.event import AuditKind
from tidelog.broker.audit.record import encode_record
from tidelog.wire.errors import AuthenticationFailedError, NotAuthorizedError, UnknownTopicIdError
from tidelog.wire.messages.keys import ListKeysRequest
from tidelog.wire.messages.users import AlterUsersRequest, PasswordHash, TokenToSet, UserToSet
from tidelog.wire.protocol import api
from tidelog.wire.security.scram import salted_password
from tidelog.wire.security.token import parse_token


async def test_denials_are_folded_with_their_rule_and_grants_are_recorded(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with (
        world.broker(authorization="enforce", audit="on") as broker,
        administrator(world, broker) as admin,
        client_of(world, broker, "alice") as alice,
        client_of(world, broker, "auditor") as auditor,
    ):
        await features_known(admin)
        topic = await create_topic(admin)
        await grant(admin, "user:alice read topic orders", "user:auditor audit cluster")
        for _ in range(50):
            with pytest.raises(NotAuthorizedError):
                await produce(alice, topic, batch_of(b"1"))
        with pytest.raises(NotAuthorizedError):
            await submit(alice, api.LIST_KEYS, ListKeysRequest()).reply()
        await trio.sleep(62)
        records = await audit_records(auditor)
        with pytest.raises((NotAuthorizedError, UnknownTopicIdError, AssertionError)):
            await audit_records(alice)

    denials = {each.action: each for each in records if each.kind is AuditKind.DENIAL}
    assert denials["cluster.keys"].resource == "cluster"
    denial = denials["topic.write"]
    assert (denial.principal, denial.action, denial.resource) == (
        "user:alice",
        "topic.write",
        "topic:orders",
    )
    assert (denial.result, denial.count) == ("NOT_AUTHORIZED", 50)
    (of_rules,) = (each for each in records if each.kind is AuditKind.GRANT)
    assert (of_rules.principal, of_rules.action, of_rules.result) == (
        "user:root",
        "access.alter",
        "ok",
    )
    assert '"user:alice"' in of_rules.detail["add"]


async def test_logins_are_recorded_and_failures_are_folded_by_the_claimed_user(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    world.network.is_encrypted = True
    async with world.broker(authentication="required", audit="on") as broker:
        await with_alice(broker)
        for _ in range(3):
            async with world.client() as client:
                with pytest.raises(AuthenticationFailedError):
                    await login_by_password(client, password="wrong horse")
        async with world.client() as client:
            await login_by_password(client)
            topic = await create_topic(client)
            await produce(client, topic, batch_of(b"1"))
            await fetch_all(client, topic)
            await trio.sleep(62)
            records = await audit_records(client)

    logins = [each for each in records if each.kind is AuditKind.AUTHENTICATION]
    failed = [each for each in logins if each.result == "AUTHENTICATION_FAILED"]
    assert sum(each.count for each in failed) == 3
    assert {each.resource for each in failed} == {"user:alice"}
    (proved,) = (each for each in logins if each.result == "ok")
    assert (proved.principal, proved.detail) == ("user:alice", {"mechanism": "SCRAM-SHA-256"})
    (of_orders,) = (each for each in records if each.resource == "topic:orders" and each.bytes_in)
    assert of_orders.principal == "user:alice"


async def test_no_record_has_a_secret(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    world.network.is_encrypted = True
    bobs = credential("bobs own password")
    token = parse_token(TOKEN_OF_ALICE)
    assert token is not None
    async with (
        world.broker(audit="required") as broker,
        administrator(world, broker) as admin,
        world.client() as client,
    ):
        await with_alice(broker)
        await login_by_token(client)
        await login_by_password(client)
        await admin.ask(
            api.ALTER_USERS,
            AlterUsersRequest(
                [
                    UserToSet(
                        "bob",
                        PasswordHash(bobs.salt, bobs.iterations, bobs.stored_key, bobs.server_key),
                        is_new=True,
                    )
                ],
                [],
                [TokenToSet("fedcba987654", "bob", b"\x5a" * 32, None)],
                [],
            ),
        )
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"the content of a record"))
        await trio.sleep(62)
        records = await audit_records(client)
    text = b"\n".join(map(encode_record, records)).decode()

    assert "user:bob" in text
    assert "fedcba987654" in text
    assert "the content of a record" not in text
    assert ALICES not in text
    assert TOKEN_OF_ALICE.rpartition("_")[2] not in text
    secrets = (
        *(bobs.salt, bobs.stored_key, bobs.server_key, b"\x5a" * 32, token.sha256),
        salted_password(ALICES, BY),
    )
    for secret in secrets:
        assert secret.hex() not in text
