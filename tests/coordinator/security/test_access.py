"""Decisions about access, and the commands that change rules."""

import random
from typing import Final

import pytest

from tests.coordinator.security.access_model import try_rule_set
from tidelog.coordinator.security.access import ADMIN_RULE, Decision
from tidelog.coordinator.security.access_commands import handle_access_command
from tidelog.coordinator.security.commands import ChangeGrants, RemoveRole, SetRole
from tidelog.coordinator.security.records import (
    Grant,
    SecurityRecord,
    UserRemoved,
    UserSet,
)
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.errors import InvalidRequestError

READ: Final = Grant("user:a", "topic", "orders", ("read",))


def decision(state: SecurityState, text: str, *, user: str = "a") -> Decision:
    action, kind, name = text.split(" ")
    return state.access.decide(
        f"user:{user}", state.access.roles_of(user), action=action, kind=kind, name=name
    )


def change(state: SecurityState, command: ChangeGrants | SetRole | RemoveRole) -> None:
    for record in handle_access_command(state, command):
        state.apply(record)


def granted(*rules: Grant) -> SecurityState:
    state = SecurityState()
    change(state, ChangeGrants(added=rules))
    return state


def test_nothing_is_allowed_without_a_rule() -> None:
    assert decision(SecurityState(), "read topic orders") == Decision(allowed=False, rule=None)


def test_a_rule_allows_its_actions_on_its_name_and_description() -> None:
    state = granted(READ)
    assert decision(state, "read topic orders") == Decision(allowed=True, rule=READ)
    assert decision(state, "describe topic orders").allowed
    assert not decision(state, "write topic orders").allowed
    assert not decision(state, "read topic orders2").allowed
    assert not decision(state, "read topic orders", user="b").allowed


def test_a_deny_beats_every_allow_whatever_its_length_or_principal() -> None:
    deny = Grant("*", "topic", "o*", ("read",), is_deny=True)
    state = granted(READ, deny, Grant("user:a", "topic", "ord*", ("*",)))
    assert decision(state, "read topic orders") == Decision(allowed=False, rule=deny)
    assert decision(state, "write topic orders").allowed


def test_overlapping_prefixes_do_not_shadow_each_other() -> None:
    state = granted(
        Grant("user:a", "topic", "a*", ("read",)),
        Grant("user:a", "topic", "ab*", ("write",)),
        Grant("user:a", "topic", "abc", ("delete",)),
    )
    for action in ("read", "write", "delete"):
        assert decision(state, f"{action} topic abc").allowed
    assert not decision(state, "write topic ac").allowed


def test_members_of_a_role_have_its_rules_until_they_leave_it() -> None:
    state = granted(Grant("role:team", "queue", "*", ("send",)))
    change(state, SetRole("team", add_members=("a", "b")))
    assert decision(state, "send queue work").allowed
    change(state, SetRole("team", remove_members=("a",)))
    assert not decision(state, "send queue work").allowed
    assert decision(state, "send queue work", user="b").allowed
    change(state, RemoveRole("team"))
    assert not decision(state, "send queue work", user="b").allowed
    assert not state.grants


def test_an_administrator_may_do_everything_and_cannot_be_denied() -> None:
    state = granted(Grant("*", "cluster", "*", ("*",), is_deny=True))
    change(state, SetRole("admin", add_members=("a",)))
    assert decision(state, "access cluster cluster") == Decision(allowed=True, rule=ADMIN_RULE)
    assert not decision(state, "access cluster cluster", user="b").allowed


def test_a_removed_user_has_neither_rules_nor_roles_if_it_is_created_again() -> None:
    state = granted(READ)
    change(state, SetRole("admin", add_members=("a",)))
    records: list[SecurityRecord] = [UserSet("a", None), UserRemoved("a"), UserSet("a", None)]
    for record in records:
        state.apply(record)
    assert not decision(state, "read topic orders").allowed


def test_a_restored_state_decides_as_the_one_before() -> None:
    state = granted(READ)
    change(state, SetRole("admin", add_members=("b",)))
    restored = SecurityState(state.snapshot())
    assert decision(restored, "read topic orders").allowed
    assert decision(restored, "delete topic orders", user="b").allowed


def test_each_change_gives_the_table_another_version() -> None:
    state = granted(READ)
    before = state.access.version
    change(state, SetRole("team", add_members=("a",)))
    assert state.access.version > before


def test_rules_for_the_same_pattern_are_merged() -> None:
    state = granted(READ, Grant("user:a", "topic", "orders", ("write", "read")))
    assert list(state.grants) == [Grant("user:a", "topic", "orders", ("read", "write"))]
    assert not handle_access_command(state, ChangeGrants(added=(READ,)))


def test_a_revocation_takes_actions_from_a_rule() -> None:
    state = granted(Grant("user:a", "topic", "orders", ("*",)))
    change(state, ChangeGrants(removed=(Grant("user:a", "topic", "orders", ("write",)),)))
    assert not decision(state, "write topic orders").allowed
    assert decision(state, "read topic orders").allowed
    change(state, ChangeGrants(removed=(Grant("user:a", "topic", "orders", ("*",)),)))
    assert not state.grants


def test_a_revocation_of_an_allow_keeps_the_deny_beside_it() -> None:
    deny = Grant("user:a", "topic", "orders", ("read",), is_deny=True)
    state = granted(READ, deny)
    change(state, ChangeGrants(removed=(READ,)))
    assert list(state.grants) == [deny]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Grant("user:a", "topic", "a*b", ("read",)), "not at its end"),
        (Grant("user:a", "topic", "*b", ("read",)), "not at its end"),
        (Grant("user:a", "topic", "orders?", ("read",)), "matches no topic"),
        (Grant("user:a", "topic", "", ("read",)), "1 to 249"),
        (Grant("user:a", "topics", "orders", ("read",)), "no kind of resource"),
        (Grant("user:a", "topic", "orders", ("send",)), "no action 'send'"),
        (Grant("user:a", "topic", "orders", ()), "names no action"),
        (Grant("user:a", "topic", "queue@work", ("read",)), "matches no topic"),
        (Grant("alice", "topic", "orders", ("read",)), "user:NAME"),
        (Grant("node:1", "topic", "orders", ("read",)), "cannot be granted"),
        (Grant("role:admin", "topic", "orders", ("read",), is_deny=True), "needs no rule"),
        (Grant("user:a", "cluster", "orders", ("describe",)), "leave the name out"),
    ],
)
def test_a_rule_that_could_not_fit_is_refused_with_a_reason(rule: Grant, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        handle_access_command(SecurityState(), ChangeGrants(added=(rule,)))


def test_a_prefix_is_covered_by_a_shorter_one_without_a_deny_within() -> None:
    table = granted(Grant("user:a", "topic", "orders-*", ("read",))).access
    asked = {"action": "read", "kind": "topic"}
    assert table.allows_all("user:a", (), **asked, prefix="orders-")
    assert table.allows_all("user:a", (), **asked, prefix="orders-eu")
    assert not table.allows_all("user:a", (), **asked, prefix="order")
    table.add(Grant("*", "topic", "orders-secret", ("read",), is_deny=True))
    assert not table.allows_all("user:a", (), **asked, prefix="orders-")


def test_the_table_and_a_naive_model_agree_about_random_rules() -> None:
    draw = random.Random(7)
    for _ in range(3_000):
        assert not try_rule_set(draw)
