"""Clients of gateways: each connection acts for the user, and renews that before its end."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.security.gateways import (
    KEY_ID,
    SCOPE,
    TOKEN_OF_FRONT,
    key_of,
    time_text,
    with_front,
    with_key,
)
from tests.broker.security.logins import change
from tests.broker.world import ADDRESS, START_MS, World
from tests.client.clients import client_of
from tidelog.broker.network.acceptor import Acceptor
from tidelog.client.client import connect
from tidelog.coordinator.security.commands import EnableAccessKey
from tidelog.wire.errors import AuthenticationFailedError, ConfigError
from tidelog.wire.security.access_key import SigningKey, scope_end_ms

AT = "{}:{}".format(*ADDRESS)
DAY_MS = 24 * 3_600_000


async def test_every_connection_acts_for_the_user(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    world.network.is_encrypted = True
    async with world.broker(authentication="required") as broker:
        await with_front(broker)
        key = await with_key(broker)
        acceptor: Acceptor = vars(broker)["_acceptor"]
        async with (
            connect(AT, env=world.env, token=TOKEN_OF_FRONT) as front,
            front.acting_for(lambda: key) as alice,
        ):
            assert alice.statistics().connections.principal == "user:alice"
            await alice.admin.create_topic("orders")
            for connection in list(acceptor.connections):
                connection.give_up("a test")
            async with alice.producer() as producer:
                await producer.send("orders", b"after a lost connection")
            assert front.statistics().connections.principal == "user:front"
            (described,) = await alice.admin.describe_topics(["orders"])
            assert described.name == "orders"

            await change(broker, EnableAccessKey(KEY_ID, is_enabled=False))
            with pytest.raises(AuthenticationFailedError, match="is disabled"):
                await alice.admin.list_topics()
            await front.admin.list_topics()


async def test_a_client_renews_with_the_newest_signing_key(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    world.network.is_encrypted = True
    end_ms = scope_end_ms(SCOPE)
    assert end_ms is not None
    async with world.broker(authentication="required") as broker:
        await with_front(broker)
        await with_key(broker)
        world.clock.offset_ms += end_ms - START_MS - 60_000
        today = SCOPE._replace(date=time_text(end_ms - 60_000)[:8])
        given: list[SigningKey] = [key_of("alice")]
        async with (
            connect(AT, env=world.env, token=TOKEN_OF_FRONT) as front,
            front.acting_for(lambda: given[-1]) as alice,
        ):
            before = alice.statistics().connections.opened
            given.append(key_of("alice", scope=today))
            await trio.sleep(120)
            await alice.admin.list_topics()
            assert alice.statistics().connections.opened == before == 1


async def test_a_source_of_signing_keys_is_a_callable() -> None:
    with pytest.raises(ConfigError, match="impersonate must be a callable"):
        async with connect(AT, impersonate=b"a key"):  # type: ignore[arg-type]
            pass


async def test_an_access_key_is_returned_once_and_listed_without_secret(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    world.network.is_encrypted = True
    async with client_of(world) as client:
        await client.security.create_user("alice")
        made = await client.security.create_access_key("alice", account="111122223333")
        other = await client.security.create_access_key("alice", description="ci")
        assert made.secret != other.secret
        assert made.secret not in repr(world.events)

        listed = await client.security.list_access_keys("alice")
        found = {each.access_key_id: each for each in listed}
        assert found[made.access_key_id].account == "111122223333"
        assert found[other.access_key_id].description == "ci"
        assert all(each.is_enabled and each.is_usable for each in listed)
        assert await client.security.enable_access_key(made.access_key_id, is_enabled=False)
        listed = await client.security.list_access_keys()
        assert {each.access_key_id: each.is_enabled for each in listed} == {
            made.access_key_id: False,
            other.access_key_id: True,
        }
        assert await client.security.remove_access_key(made.access_key_id)
        assert not await client.security.remove_access_key(made.access_key_id)
        assert not await client.security.enable_access_key(made.access_key_id)
        with pytest.raises(ConfigError, match="write twelve digits"):
            await client.security.create_access_key("alice", account="1")
        with pytest.raises(ConfigError, match="TDLA and 16 letters or digits"):
            await client.security.remove_access_key("AKIAAAAAAAAAAAAAAAAA")
