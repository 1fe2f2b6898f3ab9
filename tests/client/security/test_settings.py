"""Settings of connections: arguments before environment before profile, and files of others."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tidelog.client.config import ClientConfig
from tidelog.client.security.settings import ConnectionSettings, connection_settings
from tidelog.wire.env.real.user_files import UserFiles
from tidelog.wire.errors import ConfigError

PROFILES = """
[prod]
brokers = "a:1,b:2"
user = "alice"
password = "of the profile"

[ci]
token_file = "{token_file}"

[bare]
brokers = "c:3"
"""


def settings(
    home: Path,
    environment: Mapping[str, str] | None = None,
    config: ClientConfig | None = None,
    *,
    profile: str | None = None,
) -> ConnectionSettings:
    sources = UserFiles({"XDG_CONFIG_HOME": str(home), **(environment or {})})
    return connection_settings(config or ClientConfig(), sources, profile=profile)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a directory of a user with profiles."""
    folder = tmp_path / "tidelog"
    folder.mkdir()
    (tmp_path / "token").write_text("tdl_a token\n", encoding="utf-8")
    file = folder / "profiles.toml"
    file.write_text(PROFILES.format(token_file=tmp_path / "token"), encoding="utf-8")
    file.chmod(0o600)
    return tmp_path


def identity(found: ConnectionSettings) -> tuple[str | None, str | None, object]:
    return found.config.user, found.config.password, found.config.token


def test_without_anything_a_client_is_anonymous(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert (found.brokers, identity(found)) == (None, (None, None, None))


def test_a_profile_has_brokers_and_credentials(home: Path) -> None:
    found = settings(home, profile="prod")
    assert (found.brokers, identity(found)) == ("a:1,b:2", ("alice", "of the profile", None))
    assert settings(home, {"TIDELOG_PROFILE": "prod"}) == found
    assert settings(home, {"TIDELOG_PROFILE": "prod"}, profile="bare").brokers == "c:3"


def test_the_environment_comes_before_the_profile(home: Path) -> None:
    found = settings(
        home,
        {"TIDELOG_BROKER": "x:9", "TIDELOG_USER": "bob", "TIDELOG_PASSWORD": "of bob"},
        profile="prod",
    )
    assert (found.brokers, identity(found)) == ("x:9", ("bob", "of bob", None))


def test_arguments_come_before_the_environment(home: Path) -> None:
    environment = {"TIDELOG_USER": "bob", "TIDELOG_PASSWORD": "of bob"}
    given = ClientConfig(user="carol", password="of carol")
    assert identity(settings(home, environment, given)) == ("carol", "of carol", None)
    by_token = ClientConfig(token="tdl_an argument")
    assert identity(settings(home, environment, by_token)) == (None, None, "tdl_an argument")


def test_user_and_password_may_come_from_different_places(home: Path) -> None:
    given = ClientConfig(user="bob")
    assert identity(settings(home, {"TIDELOG_PASSWORD": "of bob"}, given)) == (
        "bob",
        "of bob",
        None,
    )
    found = settings(home, {"TIDELOG_PASSWORD": "of the environment"}, profile="prod")
    assert identity(found) == ("alice", "of the environment", None)
    found = settings(home, None, ClientConfig(user="alice"), profile="prod")
    assert identity(found) == ("alice", "of the profile", None)


def test_the_password_of_another_user_is_never_used(home: Path) -> None:
    found = settings(home, {"TIDELOG_USER": "bob"}, profile="prod")
    assert identity(found) == ("bob", None, None)
    with pytest.raises(ConfigError, match="user bob has no password; set password, TIDELOG_PASSW"):
        found.config.require_password()
    found = settings(home, {"TIDELOG_TOKEN": "tdl_other"}, ClientConfig(user="bob", password="x"))
    assert identity(found) == ("bob", "x", None)


def test_a_password_file_loses_its_line_end_alone(home: Path) -> None:
    file = home / "password"
    file.write_text(" a password \r\n", encoding="utf-8")
    environment = {"TIDELOG_USER": "bob", "TIDELOG_PASSWORD_FILE": str(file)}
    assert identity(settings(home, environment)) == ("bob", " a password ", None)


def test_a_token_file_is_read_for_each_login(home: Path) -> None:
    token = settings(home, profile="ci").config.token
    assert callable(token)
    assert token() == "tdl_a token"
    (home / "token").write_text("tdl_another", encoding="utf-8")
    assert token() == "tdl_another"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o620])
def test_profiles_that_others_can_read_are_refused(home: Path, mode: int) -> None:
    file = home / "tidelog" / "profiles.toml"
    file.chmod(mode)
    with pytest.raises(ConfigError, match=f"other users can read {file}.*run `chmod 600 {file}`"):
        settings(home, profile="prod")
    settings(home)  # Without a profile, the file is not read.


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[prod\npassword = 'a secret'", "is no TOML file"),
        ("[test]\nuser = 'a secret'", "has no profile 'prod'; it has test: add a table"),
        ("prod = 1", "has no profile 'prod'; it has none"),
        ("[prod]\nuzer = 'a secret'", "did you mean user"),
        ("[prod]\npassword = 7", "password of profile prod in .* must be a text in quotes"),
        ("[prod]\npassword = 'a secret'", "there is a password and no user"),
        (
            "[prod]\nuser = 'u'\npassword = 'a secret'\npassword_file = 'x'",
            "password and password_file exclude each other",
        ),
        ("[prod]\ntoken = 'a secret'\npassword = 'a secret'", "a password and a token exclude"),
        ("[prod]\nuser = 'u'\npassword_file = '/none'", "cannot read /none: No such file"),
        ("[prod]\ntoken_file = '/none'", "cannot read /none: No such file"),
    ],
)
def test_errors_of_profiles_are_one_line_without_secrets(home: Path, text: str, why: str) -> None:
    (home / "tidelog" / "profiles.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=why) as raised:
        settings(home, profile="prod")
    assert "a secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_of_profiles_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*profiles\.toml: No such file"):
        settings(tmp_path, profile="prod")


def test_the_home_of_the_user_is_the_default() -> None:
    home = os.path.expanduser("~")  # noqa: PTH111
    assert UserFiles({}).configuration_directory == f"{home}/.config/tidelog"


def test_a_file_that_is_no_text_is_refused(home: Path) -> None:
    (home / "password").write_bytes(b"\xff\xfe")
    environment = {"TIDELOG_USER": "bob", "TIDELOG_PASSWORD_FILE": str(home / "password")}
    with pytest.raises(ConfigError, match="it is no text in UTF-8"):
        settings(home, environment)
