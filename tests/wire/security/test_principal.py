"""Principals as text."""

import pytest

from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.security.principal import ANONYMOUS, parse_principal, user_principal


@pytest.mark.parametrize("text", ["user:alice", "user:a@b.c/d", "node:17", "anonymous"])
def test_a_principal_is_read_from_its_text(text: str) -> None:
    assert str(parse_principal(text)) == text


def test_a_client_without_credentials_is_anonymous() -> None:
    assert parse_principal("anonymous") is ANONYMOUS


@pytest.mark.parametrize(
    "text",
    [
        *("", "alice", "user:", "user:a b", "user:*", "anonymous:x", "root:x"),
        *("node:", "node:x", "node:01", "node:-1", "node:" + "9" * 5_000),
    ],
)
def test_other_texts_are_no_principals(text: str) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"no legal name|is no principal; write user:NAME"
    ):
        parse_principal(text)


def test_the_name_of_a_user_has_a_maximum_length() -> None:
    assert user_principal("a" * 128).name == "a" * 128
    with pytest.raises(InvalidRequestError, match="is no legal name; use 1 to 128 letters"):
        user_principal("a" * 129)
