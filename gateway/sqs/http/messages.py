"""HTTP requests and responses of the SQS front, whole in memory.

Pure: declarations.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec


class HttpRequest(NamedTuple):
    """One request."""

    method: bytes
    target: bytes
    """Path and query as the client sent them: signatures cover these bytes."""
    headers: Mapping[bytes, bytes]
    """Values by name in lower case; several of one name are joined by commas."""
    body: bytes


class HttpResponse(msgspec.Struct, frozen=True):
    """One response."""

    status: int
    content_type: str
    body: bytes
    headers: Sequence[tuple[str, str]] = ()
    """Further headers, such as `x-amzn-RequestId`."""
