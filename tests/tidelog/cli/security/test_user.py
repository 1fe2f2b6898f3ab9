"""`tidelog user` and `tidelog token`: nothing secret in arguments, output, or errors."""

import io
import itertools
import json
import sys
from pathlib import Path

import pytest

from tidelog import blocking
from tidelog.cli import main
from tidelog.wire.errors import AuthenticationFailedError
from tidelog.wire.security.token import parse_token

Printed = pytest.CaptureFixture[str]
_numbers = itertools.count()
SECRET = "correct horse battery"


@pytest.fixture
def name(at_broker: None) -> str:
    """Return the name of a user that no other test uses."""
    del at_broker
    return f"user-{next(_numbers)}"


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    return str(file)


def run(*words: str) -> int:
    return main.run([*words])


def test_a_user_is_created_with_a_password_from_a_file_and_logs_in(
    name: str, password_file: str, broker_address: str, capsys: Printed
) -> None:
    assert run("user", "create", name, "--password-file", password_file) == 0
    assert f"user {name} created" in capsys.readouterr().err

    with blocking.connect(broker_address, user=name, password=SECRET) as client:
        client.admin.list_topics()
    with (
        pytest.raises(AuthenticationFailedError),
        blocking.connect(broker_address, user=name, password="wrong"),
    ):
        pass


def test_a_password_is_read_from_standard_input(
    name: str, broker_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{SECRET}\n"))
    assert run("user", "create", name, "--password-file", "-") == 0
    with blocking.connect(broker_address, user=name, password=SECRET) as client:
        client.admin.list_topics()


def test_without_a_terminal_the_command_says_how_to_give_a_password(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run("user", "create", name) == 2
    assert "add --password-file FILE, or --password-file - to read" in capsys.readouterr().err
    assert run("user", "create", name, "--password", SECRET) == 2
    assert SECRET not in capsys.readouterr().err


def test_users_are_listed_changed_and_removed(
    name: str, password_file: str, capsys: Printed
) -> None:
    assert run("user", "create", name, "--no-password") == 0
    assert f"`tidelog token create {name}` creates a token" in capsys.readouterr().err
    assert run("user", "list") == 0
    assert [name, "no", "0"] in [line.split() for line in capsys.readouterr().out.splitlines()]

    assert run("user", "password", name, "--password-file", password_file) == 0
    assert run("user", "list", "--json") == 0
    assert {"name": name, "has_password": True, "token_count": 0} in json.loads(
        capsys.readouterr().out
    )
    assert run("user", "create", name, "--no-password") == 1
    assert f"`tidelog user password {name}`" in capsys.readouterr().err

    assert run("user", "remove", name, "--yes") == 0
    assert run("user", "remove", name, "--yes") == 1
    assert "`tidelog user list` lists the users" in capsys.readouterr().err
    assert run("user", "password", name, "--no-password") == 1
    assert f"`tidelog user create {name}`" in capsys.readouterr().err


def test_a_token_is_printed_once_and_revoked(
    name: str, broker_address: str, capsys: Printed
) -> None:
    assert run("user", "create", name, "--no-password") == 0
    capsys.readouterr()
    words = ("token", "create", name, "--expires-in", "90d", "--description", "build server")
    assert run(*words) == 0
    printed = capsys.readouterr()
    token = printed.out.strip()
    parts = parse_token(token)
    assert parts is not None
    assert f"`tidelog token revoke {parts.token_id}` ends it" in printed.err
    assert token not in printed.err

    with blocking.connect(broker_address, token=token) as client:
        client.admin.list_topics()
    assert run("token", "list", name) == 0
    listed = capsys.readouterr().out
    assert parts.token_id in listed
    assert "build server" in listed
    assert token.rpartition("_")[2] not in listed

    assert run("token", "revoke", parts.token_id) == 0
    assert run("token", "revoke", token) == 1
    error = capsys.readouterr().err
    assert f"there is no token {parts.token_id}" in error
    assert token not in error
    with pytest.raises(AuthenticationFailedError), blocking.connect(broker_address, token=token):
        pass


def test_commands_use_credentials_of_the_environment_and_of_profiles(
    name: str,
    password_file: str,
    broker_address: str,
    tmp_path: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
) -> None:
    assert run("user", "create", name, "--password-file", password_file) == 0
    monkeypatch.setenv("TIDELOG_USER", name)
    monkeypatch.setenv("TIDELOG_PASSWORD", "wrong")
    assert run("topic", "list") == 1
    error = capsys.readouterr().err
    assert "authentication failed" in error
    assert "`tidelog user password NAME`" in error
    monkeypatch.setenv("TIDELOG_PASSWORD_FILE", password_file)
    monkeypatch.delenv("TIDELOG_PASSWORD")
    assert run("topic", "list") == 0

    for variable in ("TIDELOG_USER", "TIDELOG_PASSWORD_FILE", "TIDELOG_BROKER"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profiles = tmp_path / "tidelog" / "profiles.toml"
    profiles.parent.mkdir()
    profiles.write_text(
        f'[prod]\nbrokers = "{broker_address}"\nuser = "{name}"\npassword = "{SECRET}"\n',
        encoding="utf-8",
    )
    assert run("--profile", "prod", "topic", "list") == 1
    assert f"`chmod 600 {profiles}`" in capsys.readouterr().err
    profiles.chmod(0o600)
    for words in (
        ("--profile", "prod", "topic", "list"),
        ("topic", "--profile", "prod", "list"),
        ("topic", "list", "--profile", "prod"),
    ):
        assert run(*words) == 0, words
    assert run("topic", "list", "--profile", "other") == 1
    assert "has no profile 'other'; it has prod" in capsys.readouterr().err
    assert run("demo", "--profile", "prod") == 2
    assert "leave out --profile" in capsys.readouterr().err


def test_an_unknown_name_may_be_one_that_the_user_does_not_see(
    name: str, password_file: str, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    assert run("topic", "describe", "nowhere") == 1
    assert "may not see it" not in capsys.readouterr().err
    assert run("user", "create", name, "--password-file", password_file) == 0
    monkeypatch.setenv("TIDELOG_USER", name)
    monkeypatch.setenv("TIDELOG_PASSWORD_FILE", password_file)
    for words in (("topic", "describe", "nowhere"), ("queue", "describe", "nowhere")):
        assert run(*words) == 1
        assert "may not see it: `tidelog access list` shows its rules" in capsys.readouterr().err
    assert run("produce", "nowhere", "--file", password_file) == 1
    assert "may not see it" in capsys.readouterr().err
