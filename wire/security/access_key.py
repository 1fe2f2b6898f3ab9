"""Access keys: ids and secrets of users for protocols that sign requests (AWS Signature Version 4).

Pure: no clock, no I/O, no entropy. A signature of AWS is an HMAC, so its check needs the secret. No
broker stores it: each derives it from the secret of the cluster and a random nonce, which the
metadata have. A gateway gets the signing key of one day, region and service, and never the secret.
"""

import hmac
import re
from base64 import b32encode
from calendar import timegm
from typing import Final, NamedTuple

ID_BYTES: Final = 10
NONCE_BYTES: Final = 32
SIGNED_MAX_MS: Final = 7 * 24 * 3_600_000
"""Milliseconds for which a presigned request is valid at most (AWS: X-Amz-Expires)."""
SKEW_MS: Final = 15 * 60_000
"""Milliseconds by which the clocks of signer and verifier may differ (AWS: 15 minutes)."""
_PREFIX: Final = "TDLA"
"""Not that of AWS: scanners of code must not take a key for one of the cloud."""
_ID: Final = re.compile(r"TDLA[A-Z2-7]{16}")
_ACCOUNT: Final = re.compile(r"[0-9]{12}")
_SECRET_BYTES: Final = 25
_DAY_MS: Final = 24 * 3_600_000
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_DATE: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})")
_TIME: Final = re.compile(_DATE.pattern + r"T([0-9]{2})([0-9]{2})([0-9]{2})Z")
_FIELDS_OF_SIGNED: Final = 4


class SigningScope(NamedTuple):
    """The scope of a signing key (AWS: credential scope)."""

    date: str
    """Day of UTC, such as `20260131`."""
    region: str
    service: str

    def __str__(self) -> str:
        """Return the scope as in signed requests."""
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


class SigningKey(NamedTuple):
    """The signing key of an access key for one scope."""

    access_key_id: str
    scope: SigningScope
    key: bytes
    """32 bytes; it signs requests of its scope and nothing else."""

    def __repr__(self) -> str:
        """Return a text without the key."""
        return f"SigningKey({self.access_key_id}, {self.scope})"


class AccessKeyName(NamedTuple):
    """What an access key belongs to; its secret changes with each of these."""

    access_key_id: str
    user: str
    account: str
    """Twelve digits; empty for the account of the gateway."""


def new_access_key_id(random: bytes) -> str:
    """Return the id of an access key, of `ID_BYTES` random bytes."""
    return _PREFIX + b32encode(random).decode()


def is_access_key_id(text: str) -> bool:
    """Return whether a text may be the id of an access key."""
    return _ID.fullmatch(text) is not None


def is_account(text: str) -> bool:
    """Return whether a text is an account: twelve digits."""
    return _ACCOUNT.fullmatch(text) is not None


def root_of(cluster_secret: bytes) -> bytes:
    """Return the key from which a cluster derives the secrets of its access keys."""
    return hmac.digest(cluster_secret, b"tidelog/access-keys", "sha256")


def root_id(root: bytes) -> bytes:
    """Return eight bytes that tell keys of `root_of` apart, and tell nothing about them."""
    return hmac.digest(root, b"id", "sha256")[:8]


def secret_of(root: bytes, name: AccessKeyName, nonce: bytes) -> str:
    """Return the secret of an access key: 40 letters and digits, of 200 bits."""
    # No part has a newline, so no two names give the same text.
    text = "\n".join(("secret", *name, nonce.hex()))
    digest = hmac.digest(root, text.encode(), "sha256")
    return b32encode(digest[:_SECRET_BYTES]).decode().lower()


def signing_key(secret: str, scope: SigningScope) -> bytes:
    """Return the signing key of a secret for a scope (AWS Signature Version 4)."""
    key = f"AWS4{secret}".encode()
    for part in (*scope, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def is_signed_by(key: bytes, signed: bytes, signature: bytes) -> bool:
    """Return whether a signature of 32 bytes is that of a key; the time tells nothing."""
    return hmac.compare_digest(hmac.digest(key, signed, "sha256"), signature)


def time_of_signed(signed: bytes, scope: SigningScope) -> int | None:
    """Return the time in a text that SigV4 signs, in Unix milliseconds.

    It is `None` of a text of another form (AWS: string to sign), or of another scope.
    """
    parts = signed.decode("ascii", "replace").split("\n")
    if len(parts) != _FIELDS_OF_SIGNED or parts[0] != _ALGORITHM or parts[2] != str(scope):
        return None
    text = parts[1]
    return _milliseconds(_TIME, text) if text.startswith(scope.date) else None


def scope_end_ms(scope: SigningScope) -> int | None:
    """Return the time after which no request of a scope is valid, in Unix milliseconds.

    It is `None` if the date is none.
    """
    start = _milliseconds(_DATE, scope.date)
    return None if start is None else start + _DAY_MS + SIGNED_MAX_MS + SKEW_MS


def is_scope_due(scope: SigningScope, now_ms: int) -> bool:
    """Return whether requests of a scope may be valid now."""
    end_ms = scope_end_ms(scope)
    return end_ms is not None and end_ms - _DAY_MS - SIGNED_MAX_MS - 2 * SKEW_MS <= now_ms <= end_ms


def impersonation_proof(key: SigningKey, time_ms: int) -> bytes:
    """Return the proof that a gateway has a signing key; requests of SigV4 never have this form."""
    text = f"TIDELOG-IMPERSONATE\n{time_ms}\n{key.scope}\n{key.access_key_id}"
    return hmac.digest(key.key, text.encode(), "sha256")


def _milliseconds(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.fullmatch(text)
    if found is None:
        return None
    year, month, day, *rest = map(int, found.groups())
    try:
        return timegm((year, month, day, *(rest or (0, 0, 0)))) * 1000
    except ValueError:  # Such as a month 13.
        return None
