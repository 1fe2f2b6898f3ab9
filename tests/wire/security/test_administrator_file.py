"""The file with an administrator."""

from base64 import b64encode

import pytest

from tidelog.wire.errors import ConfigError
from tidelog.wire.security.administrator_file import NewAdministrator, parse_administrator
from tidelog.wire.security.scram import PasswordKeys
from tidelog.wire.security.token import new_token, parse_token

SECRET = "hunter2-is-secret"
TOKEN = new_token(bytes(6), bytes(32))
KEYS = PasswordKeys(b"0123456789abcdef", 4096, bytes(32), b"\1" * 32)


def parsed(text: str) -> NewAdministrator:
    return parse_administrator(text, file="admin.toml")


def text_of(keys: PasswordKeys) -> str:
    """Return keys in the form of RFC 5803."""
    salt, stored, server = (
        b64encode(each).decode() for each in (keys.salt, keys.stored_key, keys.server_key)
    )
    return f"SCRAM-SHA-256${keys.iterations}:{salt}${stored}:{server}"


def test_a_user_has_a_password_or_a_token_or_the_keys_of_a_password() -> None:
    assert parsed(f'user = "root"\npassword = "{SECRET}"\n').password == SECRET
    assert parsed(f'user = "root"\ntoken = "{TOKEN}"\n').token == parse_token(TOKEN)
    assert parsed(f'user = "root"\nscram = "{text_of(KEYS)}"\n').keys == KEYS


def test_the_secret_is_not_shown() -> None:
    found = parsed(f'user = "root"\npassword = "{SECRET}"\n')

    assert SECRET not in repr(found)
    assert "root" in repr(found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has not exactly one user with one password, token or scram"),
        ('user = "root"', "has not exactly one user"),
        (f'password = "{SECRET}"', "has not exactly one user"),
        (f'user = "root"\npassword = "{SECRET}"\ntoken = "{TOKEN}"', "has not exactly one user"),
        ('user = "root"\npassword = 5', "has not exactly one user"),
        (f'user = ["root"]\npassword = "{SECRET}"', "has not exactly one user"),
        (f'user = "root"\npassword = "{SECRET}"\nroot = "yes"', "has an unknown name 'root'"),
        (f'user = "a b"\npassword = "{SECRET}"', "'a b' is no legal name"),
        ('user = "root"\npassword = ""', "has an empty password"),
        (f'user = "root"\npassword = "{SECRET}', "is not TOML"),
        (f"user = root\npassword = {SECRET}", "is not TOML"),
        (f'user = "root"\ntoken = "{SECRET}"', "has a token of another form"),
        (f'user = "root"\nscram = "{SECRET}"', "has no scram of the form"),
        (f'user = "root"\nscram = "{text_of(KEYS._replace(iterations=4095))}"', "has no scram"),
        (f'user = "root"\nscram = "{text_of(KEYS._replace(stored_key=b"x"))}"', "has no scram"),
    ],
)
def test_another_text_is_one_line_without_the_secret(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed(text)

    said = str(refused.value)
    assert said.startswith("the administrator file admin.toml ")
    assert problem in said
    assert 'user = "NAME" and password = "..."' in said
    assert SECRET not in said
    assert "\n" not in said
    assert refused.value.__cause__ is None or SECRET not in str(refused.value.__cause__)
