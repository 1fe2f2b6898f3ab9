"""Messages of the handshake: the first request on a connection, and its answer.

Pure: declarations.
"""

import msgspec

from tidelog.wire.messages.field_types import ByteCount


class ApiVersions(msgspec.Struct, frozen=True, array_like=True):
    """The versions of one API that a broker speaks."""

    api_key: int
    min_version: int
    """Lowest version spoken (inclusive)."""
    max_version: int
    """Highest version spoken (inclusive)."""


class HelloRequest(msgspec.Struct, frozen=True, array_like=True):
    """The first request on every connection; it is the same in all versions for ever."""

    client_id: str
    """What asks, for logs: a program or library name."""
    client_version: str


class HelloReply(msgspec.Struct, frozen=True, array_like=True):
    """Who answers, and what it speaks."""

    broker_version: str
    cluster_id: str
    node_id: int
    apis: list[ApiVersions]
    """Every API that may be asked; the client uses the highest version both sides know."""
    max_frame_bytes: ByteCount
    """Longer frames are refused and end the connection."""
    max_in_flight_requests_per_connection: int
    """The broker reads no further request while so many of this connection are unanswered."""
