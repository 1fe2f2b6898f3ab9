"""Messages about access keys of users, and about gateways that act for users.

Pure: declarations. An access key signs requests of other protocols (AWS Signature Version 4). Its
secret is in one message: the reply to its creation.
"""

from typing import Annotated

import msgspec

from tidelog.wire.messages.field_types import Listed
from tidelog.wire.messages.users import Description, Sha256

AccessKeyId = Annotated[str, msgspec.Meta(pattern=r"^TDLA[A-Z2-7]{16}\Z")]
Account = Annotated[str, msgspec.Meta(pattern=r"^([0-9]{12})?\Z")]
"""Twelve digits; empty for the account of the gateway."""
KeyNonce = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
SigningDate = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{8}\Z")]
ScopePart = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,64}\Z")]
Signed = Annotated[bytes, msgspec.Meta(max_length=512)]


class AccessKeyToCreate(msgspec.Struct, frozen=True, array_like=True):
    """An access key to create."""

    access_key_id: AccessKeyId
    """Drawn by the client."""
    user: str
    nonce: KeyNonce
    """Drawn by the client: the secret is derived from it, and from the secret of the cluster. The
    same request returns the same secret again, and another nonce is refused."""
    account: Account = ""
    description: Description = ""


class AlterAccessKeysRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change access keys, in the order of the fields. The request is idempotent."""

    create: Listed[AccessKeyToCreate]
    remove: Listed[AccessKeyId] = []
    enable: Listed[AccessKeyId] = []
    disable: Listed[AccessKeyId] = []


class CreatedAccessKey(msgspec.Struct, frozen=True, array_like=True):
    """A new access key, with its secret."""

    access_key_id: str
    secret: str

    def __repr__(self) -> str:
        """Return a text without the secret."""
        return f"CreatedAccessKey({self.access_key_id!r})"


class AlterAccessKeysReply(msgspec.Struct, frozen=True, array_like=True):
    """All changes are durable, and in force on all brokers."""

    created: list[CreatedAccessKey]
    """In the order of the request."""
    unknown: list[str]
    """Ids to remove, enable or disable that did not exist."""


class ListAccessKeysRequest(msgspec.Struct, frozen=True, array_like=True):
    """List access keys, without secrets."""

    user: str | None
    """Only those of this user."""


class AccessKeyDescription(msgspec.Struct, frozen=True, array_like=True):
    """An access key, without its secret."""

    access_key_id: str
    user: str
    account: str
    """Empty for the account of the gateway."""
    created_at_ms: int
    is_enabled: bool
    is_usable: bool
    """Whether the broker that answers has the secret of the cluster that the key was made with."""
    description: str = ""


class ListAccessKeysReply(msgspec.Struct, frozen=True, array_like=True):
    """Access keys by user and time of creation."""

    access_keys: list[AccessKeyDescription]


class GetSigningKeyRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the signing key of a scope, with a request that the user has signed by it.

    A gateway gets no key of a user that has not sent it a request.
    """

    access_key_id: Annotated[str, msgspec.Meta(max_length=128)]
    """As in the signed request; an id of another form is unknown."""
    date: SigningDate
    region: ScopePart
    service: ScopePart
    signed: Signed
    """The text that was signed (AWS: string to sign)."""
    signature: Sha256


class GetSigningKeyReply(msgspec.Struct, frozen=True, array_like=True):
    """The signing key, or why there is none."""

    is_known: bool
    """Whether there is such an access key, and it is enabled."""
    signing_key: bytes = b""
    """Empty if the signature is not that of the key."""
    user: str = ""
    account: str = ""
    """Empty for the account of the gateway."""

    def __repr__(self) -> str:
        """Return a text without the key."""
        return f"GetSigningKeyReply(is_known={self.is_known}, user={self.user!r})"


class ImpersonateRequest(msgspec.Struct, frozen=True, array_like=True):
    """Act for the user of an access key on this connection from now on, or renew that.

    The principal of the connection needs the action `impersonate` of the cluster.
    """

    access_key_id: AccessKeyId
    date: SigningDate
    region: ScopePart
    service: ScopePart
    """Scope of the signing key that makes the proof."""
    time_ms: int
    """Unix milliseconds of the proof, on the clock of the gateway."""
    proof: Sha256
    """See `wire.security.access_key.impersonation_proof`."""


class ImpersonateReply(msgspec.Struct, frozen=True, array_like=True):
    """The connection acts for the user."""

    principal: str
    """Such as `user:alice`."""
    lifetime_ms: int
    """Milliseconds from now after which the broker refuses requests, without a renewal."""
