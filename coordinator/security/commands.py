"""The commands about security metadata.

Pure: declarations. Each command may be sent again when its answer was lost: it sets what is wanted,
so the second one changes nothing.
"""

import msgspec

from tidelog.coordinator.security.records import Grant, ScramCredential


class SetUser(msgspec.Struct, frozen=True, array_like=True, tag="set-user"):
    """Create a user, or replace its password."""

    name: str
    credential: ScramCredential | None
    is_new: bool = False
    """Whether a user of this name with another credential is refused."""
    is_known: bool = False
    """Whether a user of this name must exist."""


class RemoveUser(msgspec.Struct, frozen=True, array_like=True, tag="remove-user"):
    """Remove a user with its tokens, access keys, memberships, grants and quota."""

    name: str


class SetToken(msgspec.Struct, frozen=True, array_like=True, tag="set-token"):
    """Create a token of a user. The same token id is created once."""

    token_id: str
    user: str
    sha256: bytes
    expires_at_ms: int | None
    description: str = ""


class RemoveToken(msgspec.Struct, frozen=True, array_like=True, tag="remove-token"):
    """Revoke a token."""

    token_id: str


class CreateAccessKey(msgspec.Struct, frozen=True, array_like=True, tag="create-access-key"):
    """Create an access key of a user. The same id is created once."""

    access_key_id: str
    user: str
    account: str
    nonce: bytes
    root_id: bytes
    description: str = ""


class EnableAccessKey(msgspec.Struct, frozen=True, array_like=True, tag="enable-access-key"):
    """Enable or disable an access key."""

    access_key_id: str
    is_enabled: bool


class RemoveAccessKey(msgspec.Struct, frozen=True, array_like=True, tag="remove-access-key"):
    """Remove an access key."""

    access_key_id: str


class SetAdministrator(msgspec.Struct, frozen=True, array_like=True, tag="set-administrator"):
    """Create a user that may do everything: the first one, or one after a lock-out.

    The second one changes nothing: there are users then, or a recovery sets the same credentials.
    """

    user: str
    credential: ScramCredential | None = None
    """Replaces the password of the user; `None` keeps it."""
    token_id: str | None = None
    token_sha256: bytes = b""
    recovered_by: int | None = None
    """Node in whose data directory an operator asks for a recovery; `None` for the first user,
    which changes nothing in a cluster that has users."""


class SetRole(msgspec.Struct, frozen=True, array_like=True, tag="set-role"):
    """Create a role, or change its members."""

    name: str
    add_members: tuple[str, ...] = ()
    remove_members: tuple[str, ...] = ()


class RemoveRole(msgspec.Struct, frozen=True, array_like=True, tag="remove-role"):
    """Remove a role with its grants."""

    name: str


class ChangeGrants(msgspec.Struct, frozen=True, array_like=True, tag="change-grants"):
    """Add and remove rules of access, all or none."""

    added: tuple[Grant, ...] = ()
    removed: tuple[Grant, ...] = ()


class SetQuota(msgspec.Struct, frozen=True, array_like=True, tag="set-quota"):
    """Change quotas of a principal."""

    principal: str
    set_values: dict[str, int] = {}
    remove_values: tuple[str, ...] = ()
    """Names of quotas to remove; `*` alone for all."""


class SetDataKey(msgspec.Struct, frozen=True, array_like=True, tag="set-data-key"):
    """Add a data key to a topic, or replace its wrapping. The same key id is added once."""

    topic_id: bytes
    key_id: int
    wrapped: bytes
    master_id: str
    replaces_master_id: str | None = None
    """Master key of the wrapping to replace; `None` adds a new key."""


class RemoveDataKeys(msgspec.Struct, frozen=True, array_like=True, tag="remove-data-keys"):
    """Delete data keys of a topic for ever; the newest key cannot be deleted."""

    topic_id: bytes
    key_ids: tuple[int, ...]


UserCommand = SetUser | RemoveUser | SetToken | RemoveToken
AccessKeyCommand = CreateAccessKey | EnableAccessKey | RemoveAccessKey
AccessCommand = SetRole | RemoveRole | ChangeGrants
SecurityCommand = (
    UserCommand
    | AccessKeyCommand
    | AccessCommand
    | SetQuota
    | SetDataKey
    | RemoveDataKeys
    | SetAdministrator
)
