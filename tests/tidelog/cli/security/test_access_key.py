"""`tidelog access-key`: keys are printed once, listed without secrets, disabled and removed."""

import itertools
import json

import pytest

from tidelog.cli import main

Printed = pytest.CaptureFixture[str]
_numbers = itertools.count()


@pytest.fixture
def name(at_broker: None) -> str:
    """Return the name of a user that no other test uses."""
    del at_broker
    name = f"key-user-{next(_numbers)}"
    assert run("user", "create", name, "--no-password") == 0
    return name


def run(*words: str) -> int:
    return main.run([*words])


def test_a_key_is_printed_as_variables_and_listed_without_its_secret(
    name: str, capsys: Printed
) -> None:
    account = ("--account", "111122223333", "--description", "ci")
    assert run("access-key", "create", f"user:{name}", *account) == 0
    printed = capsys.readouterr()
    variables = dict(line.split("=", 1) for line in printed.out.splitlines())
    key_id, secret = variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]
    assert len(secret) == 40
    assert f"tidelog access-key remove {key_id}" in printed.err

    assert run("access-key", "list", name) == 0
    listed = capsys.readouterr().out
    assert all(word in listed for word in (key_id, name, "111122223333", "enabled", "ci"))
    assert run("access-key", "list", f"user:{name}", "--json") == 0
    text = capsys.readouterr().out
    assert secret not in listed + text
    (found,) = json.loads(text)
    assert (found["access_key_id"], found["is_enabled"]) == (key_id, True)


def test_a_key_is_disabled_enabled_and_removed(name: str, capsys: Printed) -> None:
    assert run("access-key", "create", name, "--json") == 0
    key_id = json.loads(capsys.readouterr().out)["access_key_id"]

    assert run("access-key", "disable", key_id) == 0
    run("access-key", "list", name)
    assert "disabled" in capsys.readouterr().out
    assert run("access-key", "enable", key_id) == 0
    run("access-key", "list", name)
    assert "enabled" in capsys.readouterr().out
    assert run("access-key", "remove", key_id) == 0
    assert run("access-key", "remove", key_id) == 1
    assert f"there is no access key {key_id}" in capsys.readouterr().err
    run("access-key", "list", name)
    assert "there are no access keys" in capsys.readouterr().err


def test_errors_are_one_line(name: str, capsys: Printed) -> None:
    assert run("access-key", "create", name, "--account", "1") == 1
    assert run("access-key", "create", "no-such-user") == 1
    assert run("access-key", "disable", "AKIAAAAAAAAAAAAAAAAA") == 1
    errors = capsys.readouterr().err.splitlines()
    assert "write twelve digits" in errors[-3]
    assert "user no-such-user does not exist" in errors[-2]
    assert "TDLA and 16 letters or digits" in errors[-1]
