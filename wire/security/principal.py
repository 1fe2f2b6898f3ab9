"""Principals: the identities that requests act for (Kafka: KafkaPrincipal).

Pure: no clock, no I/O.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from tidelog.wire.errors import InvalidRequestError

NAME_CHARS_MAX: Final = 128
_NODE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_NAME: Final = re.compile(r"[A-Za-z0-9._@+/=-]{1,128}")


class PrincipalKind(StrEnum):
    """The kind of a principal."""

    ANONYMOUS = "anonymous"
    """A client that has not authenticated."""
    USER = "user"
    NODE = "node"
    """A node of the cluster; its name is the node id."""


class Principal(NamedTuple):
    """The identity at the other end of a connection, as text `user:alice`, `node:1`."""

    kind: PrincipalKind
    name: str = ""

    def __str__(self) -> str:
        """Return the text of the principal."""
        return f"{self.kind}:{self.name}" if self.name else str(self.kind)


ANONYMOUS: Final = Principal(PrincipalKind.ANONYMOUS)


def user_principal(name: str) -> Principal:
    """Return the principal of a user.

    Raises:
        InvalidRequestError: The name has other characters, or is too long.
    """
    check_name(name, of="user")
    return Principal(PrincipalKind.USER, name)


def check_name(name: str, *, of: str) -> None:
    """Check the name of a user or role.

    Raises:
        InvalidRequestError: The name has other characters, or is too long.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"{of} {name!r} is no legal name; use 1 to {NAME_CHARS_MAX} letters, digits and"
            " characters of ._@+/=-"
        )


def parse_principal(text: str) -> Principal:
    """Return the principal in a text such as `user:alice`, `node:1` or `anonymous`.

    Raises:
        InvalidRequestError: The text is no principal.
    """
    kind, _, name = text.partition(":")
    if text == ANONYMOUS.kind:
        return ANONYMOUS
    if kind == PrincipalKind.USER:
        return user_principal(name)
    if kind == PrincipalKind.NODE and _NODE_ID.fullmatch(name):
        return Principal(PrincipalKind.NODE, name)
    raise InvalidRequestError(f"{text!r} is no principal; write user:NAME, node:ID or anonymous")
