"""`tidelog access` and `tidelog role`."""

import json

import pytest

from tidelog.cli import main

Printed = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("at_broker")


def printed(capsys: Printed, *words: str, status: int = 0) -> str:
    assert main.run([*words]) == status
    return capsys.readouterr().out


def test_a_rule_is_granted_listed_and_revoked(capsys: Printed) -> None:
    granted = printed(capsys, "access", "grant", "user:ann", "read,write", "topic", "orders-*")
    assert granted == "allow user:ann read,write topic orders-*\n"
    printed(capsys, "access", "deny", "*", "read", "topic", "orders-secret")

    table = printed(capsys, "access", "list", "user:ann").splitlines()
    assert table[1].split() == ["user:ann", "topic", "orders-*", "read,write", "allow"]
    (deny,) = json.loads(printed(capsys, "access", "list", "*", "--json"))
    assert deny == {
        "principal": "*",
        "kind": "topic",
        "name": "orders-secret",
        "actions": ["read"],
        "is_deny": True,
    }

    left = printed(capsys, "access", "revoke", "user:ann", "write", "topic", "orders-*")
    assert left == "allow user:ann read topic orders-*\n"
    left = printed(capsys, "access", "revoke", "user:ann", "*", "topic", "orders-*")
    assert left == "revoked: no rule to allow user:ann topic orders-* is left\n"
    left = printed(capsys, "access", "revoke", "user:ann", "*", "topic", "orders-*")
    assert left == "there was no rule to allow user:ann topic orders-*\n"


def test_a_forgotten_kind_is_named(capsys: Printed) -> None:
    assert main.run(["access", "grant", "user:ann", "write", "orders"]) == 2
    assert "'orders' is no kind of resource; use one of topic, queue" in capsys.readouterr().err


def test_an_explanation_is_the_rule_or_the_command_that_would_allow_it(capsys: Printed) -> None:
    printed(capsys, "access", "grant", "role:crew", "send", "queue", "jobs")
    printed(capsys, "role", "add", "crew", "bea")

    allowed = printed(capsys, "access", "explain", "user:bea", "send", "queue", "jobs")
    assert allowed.splitlines()[:2] == [
        "user:bea may send queue jobs: allow role:crew send queue jobs",
        "roles: crew",
    ]
    denied = printed(capsys, "access", "explain", "user:bea", "receive", "queue", "jobs", status=3)
    assert denied.splitlines()[:2] == [
        "user:bea may not receive queue jobs: no rule allows it",
        "to allow it: tidelog access grant user:bea receive queue jobs",
    ]
    assert "authorization = off" in denied
    holders = printed(capsys, "access", "who", "send", "queue", "jobs").splitlines()
    assert holders[1].split()[0] == "user:bea"


def test_roles_are_listed_with_their_members(capsys: Printed) -> None:
    printed(capsys, "role", "create", "empty")
    printed(capsys, "role", "add", "pair", "cid", "dan")
    printed(capsys, "role", "remove", "pair", "dan")
    found = {
        each["name"]: each["members"]
        for each in json.loads(printed(capsys, "role", "list", "--json"))
    }
    assert (found["empty"], found["pair"]) == ([], ["cid"])
    printed(capsys, "role", "delete", "pair")
    assert "pair" not in printed(capsys, "role", "list")


def test_a_pattern_that_matches_nothing_is_one_line_with_the_remedy(capsys: Printed) -> None:
    assert main.run(["access", "grant", "user:ann", "read", "topic", "a*b"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "not at its end" in line


def test_a_resource_without_its_name_is_wrong_use(capsys: Printed) -> None:
    assert main.run(["access", "grant", "user:ann", "read", "topic"]) == 2
    assert "topic needs a name" in capsys.readouterr().err


def test_the_last_administrator_leaves_its_role_after_a_confirmation_only(capsys: Printed) -> None:
    printed(capsys, "role", "add", "admin", "eve", "flo")
    printed(capsys, "role", "remove", "admin", "flo")
    for words in (
        ("role", "remove", "admin", "flo", "eve"),
        ("user", "remove", "eve"),
    ):
        assert main.run([*words]) == 2
        assert "add --yes" in capsys.readouterr().err
    assert json.loads(printed(capsys, "role", "list", "--json"))[0]["members"] == ["eve"]
    printed(capsys, "role", "remove", "admin", "eve", "--yes")
    assert json.loads(printed(capsys, "role", "list", "--json"))[0]["members"] == []
