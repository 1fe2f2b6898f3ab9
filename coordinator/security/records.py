"""The records of the metadata log about security, of feature level 4; access keys of level 7.

Pure: declarations. A record is a msgpack array that begins with its tag; a field is only ever
appended, with a default. No record has a secret that opens a connection or a topic by itself.
"""

import msgspec


class ScramCredential(msgspec.Struct, frozen=True, array_like=True):
    """What a broker keeps of a password: enough to check it, not to use it (RFC 5802)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class UserSet(msgspec.Struct, frozen=True, array_like=True, tag="user-set"):
    """A user exists, or has another password."""

    name: str
    credential: ScramCredential | None
    """`None` for a user without a password, such as one with tokens or a certificate only."""


class UserRemoved(msgspec.Struct, frozen=True, array_like=True, tag="user-removed"):
    """A user is gone with its tokens, access keys, memberships in roles, own grants and quota."""

    name: str


class TokenSet(msgspec.Struct, frozen=True, array_like=True, tag="token-set"):
    """A token of a user exists."""

    token_id: str
    user: str
    sha256: bytes
    """Of the secret part, which has 256 random bits."""
    created_at_ms: int
    expires_at_ms: int | None
    """Unix milliseconds; `None` for a token without an end."""
    description: str = ""


class TokenRemoved(msgspec.Struct, frozen=True, array_like=True, tag="token-removed"):
    """A token is revoked."""

    token_id: str


class AccessKeySet(msgspec.Struct, frozen=True, array_like=True, tag="access-key-set"):
    """An access key of a user exists, or is enabled or not. The record has no secret."""

    access_key_id: str
    user: str
    account: str
    """Twelve digits; empty for the account of the gateway."""
    nonce: bytes
    """The secret is derived from it, and from the secret of the cluster."""
    root_id: bytes
    """Of the secret of the cluster at that time; see `wire.security.access_key`."""
    created_at_ms: int
    description: str = ""
    is_enabled: bool = True


class AccessKeyRemoved(msgspec.Struct, frozen=True, array_like=True, tag="access-key-removed"):
    """An access key is gone."""

    access_key_id: str


class RoleSet(msgspec.Struct, frozen=True, array_like=True, tag="role-set"):
    """A role exists, with all its members."""

    name: str
    members: tuple[str, ...]
    """Names of users, sorted."""


class RoleRemoved(msgspec.Struct, frozen=True, array_like=True, tag="role-removed"):
    """A role is gone, with its grants."""

    name: str


class Grant(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One rule of access; see `coordinator.security.access`."""

    principal: str
    """`user:NAME`, `role:NAME`, `anonymous`, or `*` for every principal."""
    kind: str
    """`topic`, `queue`, `group`, `staged` or `cluster`."""
    pattern: str
    """A name, or `PREFIX*`."""
    actions: tuple[str, ...]
    """Sorted; `*` alone for all."""
    is_deny: bool = False


class GrantsChanged(msgspec.Struct, frozen=True, array_like=True, tag="grants-changed"):
    """Rules of access are added and removed, at once."""

    added: tuple[Grant, ...]
    removed: tuple[Grant, ...]


class QuotaSet(msgspec.Struct, frozen=True, array_like=True, tag="quota-set"):
    """A principal has other quotas; without values it has none of its own."""

    principal: str
    """`user:NAME`, `anonymous`, or `default` for each principal without quotas of its own."""
    values: dict[str, int]
    """All quotas of the principal by name."""


class DataKeySet(msgspec.Struct, frozen=True, array_like=True, tag="data-key-set"):
    """A topic has one more data key, or a key is wrapped by another master key."""

    topic_id: bytes
    key_id: int
    """Rises with each key of the topic, from 1."""
    wrapped: bytes
    master_id: str
    created_at_ms: int


class DataKeysRemoved(msgspec.Struct, frozen=True, array_like=True, tag="data-keys-removed"):
    """Data keys of a topic are deleted for ever: their records cannot be opened any more."""

    topic_id: bytes
    key_ids: tuple[int, ...]


SecurityRecord = (
    UserSet
    | UserRemoved
    | TokenSet
    | TokenRemoved
    | RoleSet
    | RoleRemoved
    | GrantsChanged
    | QuotaSet
    | DataKeySet
    | DataKeysRemoved
    | AccessKeySet
    | AccessKeyRemoved
)


class SecuritySnapshot(msgspec.Struct, frozen=True, array_like=True):
    """All security metadata, as of one record."""

    users: tuple[UserSet, ...] = ()
    tokens: tuple[TokenSet, ...] = ()
    roles: tuple[RoleSet, ...] = ()
    grants: tuple[Grant, ...] = ()
    quotas: tuple[QuotaSet, ...] = ()
    data_keys: tuple[DataKeySet, ...] = ()
    version: int = 0
    access_keys: tuple[AccessKeySet, ...] = ()
