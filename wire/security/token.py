"""Tokens: secrets of users that programs carry (GitHub, GitLab: personal access token).

Pure: no clock, no I/O, no entropy. A token is `tdl_ID_SECRET`. The id is public, and names the
token for administrators. The secret has 256 random bits, so a broker stores its SHA-256 alone.
"""

import hashlib
import re
from base64 import urlsafe_b64encode
from typing import Final, NamedTuple

TOKEN: Final = "TOKEN"  # noqa: S105  (a mechanism's name)
ID_BYTES: Final = 6
SECRET_BYTES: Final = 32
PREFIX: Final = "tdl_"
_TOKEN: Final = re.compile(r"tdl_(?P<id>[0-9a-f]{12})_(?P<secret>[A-Za-z0-9_-]{43})")
_ID: Final = re.compile(r"[0-9a-f]{12}")


class TokenParts(NamedTuple):
    """The public and the hashed part of a token."""

    token_id: str
    sha256: bytes


def new_token(random_id: bytes, secret: bytes) -> str:
    """Return a token of `ID_BYTES` and `SECRET_BYTES` random bytes."""
    text = urlsafe_b64encode(secret).decode().rstrip("=")
    return f"{PREFIX}{random_id.hex()}_{text}"


def parse_token(text: str) -> TokenParts | None:
    """Return the parts of a token; `None` of a text that is none."""
    found = _TOKEN.fullmatch(text)
    if found is None:
        return None
    return TokenParts(found["id"], hashlib.sha256(found["secret"].encode()).digest())


def is_token_id(text: str) -> bool:
    """Return whether a text may be the id of a token."""
    return _ID.fullmatch(text) is not None
