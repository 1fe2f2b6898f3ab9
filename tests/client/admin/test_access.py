"""Administration of access by a client, at a real broker."""

import pytest
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.clients import client_of
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.access import AccessRule, RoleDescription


async def test_rules_are_granted_listed_and_revoked(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        access = client.access
        given = await access.grant("user:alice", "read,write", "topic", name="orders-*")
        await access.deny("*", ["read"], "topic", name="orders-secret")
        await access.grant("user:alice", "describe", "cluster")

        both = AccessRule("user:alice", "topic", "orders-*", ["read", "write"])
        deny = AccessRule("*", "topic", "orders-secret", ["read"], is_deny=True)
        assert given.rules == [both]
        assert given.unconfirmed_nodes == []
        assert await access.list_rules(kind="topic") == [deny, both]
        assert await access.list_rules("user:alice", name="orders-eu") == [both]

        await access.revoke("user:alice", "write", "topic", name="orders-*")
        await access.revoke("*", "*", "topic", name="orders-secret", is_deny=True)
        assert await access.list_rules(kind="topic") == [
            AccessRule("user:alice", "topic", "orders-*", ["read"])
        ]


async def test_a_rule_that_matches_nothing_is_refused_with_the_remedy(
    autojump_clock: MockClock,
) -> None:
    async with client_of(World(autojump_clock)) as client:
        with pytest.raises(InvalidRequestError, match=r"one prefix such as 'orders-\*'"):
            await client.access.grant("user:alice", "read", "topic", name="orders-*-eu")


async def test_roles_have_members_until_they_are_removed(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        access = client.access
        await access.alter_role("team", add=["alice", "bob"])
        await access.alter_role("team", remove=["bob"])
        await access.grant("role:team", "send", "queue", name="work")
        assert await access.list_roles() == [RoleDescription("team", ["alice"])]

        found = await access.explain("user:alice", "send", "queue", name="work")
        assert found.is_allowed
        assert found.roles == ["team"]
        holders = await access.holders("send", "queue", name="work")
        assert [each.principal for each in holders] == ["user:alice"]

        await access.remove_role("team")
        assert await access.list_roles() == []
        found = await access.explain("user:alice", "send", "queue", name="work")
        assert found.remedy == "tidelog access grant user:alice send queue work"
