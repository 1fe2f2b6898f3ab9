"""Messages about users and their tokens (Kafka: AlterUserScramCredentials, KIP-554).

Pure: declarations. No message has a password or a token: the client hashes both.
"""

from typing import Annotated

import msgspec

Sha256 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
TokenId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{12}\Z")]
Description = Annotated[str, msgspec.Meta(max_length=256)]


class PasswordHash(msgspec.Struct, frozen=True, array_like=True):
    """The keys of SCRAM-SHA-256 of a password (RFC 5802): they check it, and do not prove it."""

    salt: Annotated[bytes, msgspec.Meta(min_length=12, max_length=64)]
    iterations: Annotated[int, msgspec.Meta(ge=4_096, le=10_000_000)]
    stored_key: Sha256
    server_key: Sha256

    def __repr__(self) -> str:
        """Return a text without the keys."""
        return f"PasswordHash(iterations={self.iterations})"


class UserToSet(msgspec.Struct, frozen=True, array_like=True):
    """A user to create, or whose password to replace."""

    name: str
    password: PasswordHash | None
    """`None` for a user without a password, such as one with tokens only."""
    is_new: bool
    """Whether the user must not exist; otherwise it must."""


class TokenToSet(msgspec.Struct, frozen=True, array_like=True):
    """A token to create."""

    token_id: TokenId
    """Drawn by the client; it names the token to administrators and is part of it."""
    user: str
    sha256: Sha256
    """SHA-256 of the secret part of the token."""
    expires_at_ms: int | None
    """Unix milliseconds; `None` for no end."""
    description: Description = ""


class AlterUsersRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change users and tokens, in the order of the fields. The request is idempotent."""

    set_users: list[UserToSet]
    remove_users: list[str]
    """With their tokens, memberships, grants and quotas."""
    set_tokens: list[TokenToSet]
    remove_tokens: list[TokenId]


class AlterUsersReply(msgspec.Struct, frozen=True, array_like=True):
    """All changes are durable."""

    unknown: list[str]
    """Users and ids of tokens to remove that did not exist."""


class ListUsersRequest(msgspec.Struct, frozen=True, array_like=True):
    """List users and tokens, without secrets."""

    user: str | None
    """Only this user and its tokens."""


class UserDescription(msgspec.Struct, frozen=True, array_like=True):
    """A user."""

    name: str
    has_password: bool
    token_count: int
    """Tokens, expired ones included."""


class TokenDescription(msgspec.Struct, frozen=True, array_like=True):
    """A token, without its secret."""

    token_id: str
    user: str
    created_at_ms: int
    expires_at_ms: int | None
    """Unix milliseconds; `None` for no end."""
    description: str = ""


class ListUsersReply(msgspec.Struct, frozen=True, array_like=True):
    """Users by name, and tokens by user and time of creation."""

    users: list[UserDescription]
    tokens: list[TokenDescription]
