"""Messages of the handshake: the first request on a connection, and its answer.

Pure: declarations.
"""

from typing import Annotated

import msgspec

from tidelog.wire.messages.field_types import ByteCount, NodeId


class ApiVersions(msgspec.Struct, frozen=True, array_like=True):
    """The versions of one API that a broker supports."""

    api_key: int
    min_version: int
    """Lowest supported version (inclusive)."""
    max_version: int
    """Highest supported version (inclusive)."""


class HelloRequest(msgspec.Struct, frozen=True, array_like=True):
    """The first request on every connection; it never changes between versions."""

    client_id: str
    """Name of the program or library, for logs."""
    client_version: str


class HelloReply(msgspec.Struct, frozen=True, array_like=True):
    """The identity of a broker and its API versions (Kafka: ApiVersions)."""

    broker_version: str
    cluster_id: str
    node_id: int
    apis: list[ApiVersions]
    """Every supported API; the client uses the highest version that both sides support."""
    max_frame_bytes: ByteCount
    """Longer frames are refused and end the connection."""
    max_in_flight_requests_per_connection: int
    """Maximum unanswered requests of this connection; the broker reads no further request then."""


Nonce = Annotated[bytes, msgspec.Meta(min_length=16, max_length=64)]
"""Random bytes of one connection."""


class AuthenticateRequest(msgspec.Struct, frozen=True, array_like=True):
    """A client proves its identity, or renews it, in one or more requests.

    The client may send other requests when the last reply is complete; a renewal needs no pause.
    """

    mechanism: str
    """`SCRAM-SHA-256`, `TOKEN` or `JWT`."""
    data: bytes
    """The next message of the mechanism."""


class AuthenticateReply(msgspec.Struct, frozen=True, array_like=True):
    """The broker's next message of a mechanism."""

    data: bytes
    is_complete: bool
    """Whether the client is authenticated now."""
    principal: str = ""
    """Such as `user:alice`; empty before the end."""
    expires_at_ms: int | None = None
    """Unix milliseconds after which the broker refuses requests; `None` for no end."""
    lifetime_ms: int | None = None
    """Milliseconds from now until then, for clients whose clock is wrong."""


class ProveNodeRequest(msgspec.Struct, frozen=True, array_like=True):
    """A node proves that it is one of the cluster, in two requests; see `wire.protocol.node_proof`.

    The first asks for the proof of the other side, the second has the own one.
    """

    node_id: NodeId
    """The sender."""
    nonce: Nonce
    """Drawn by the sender, the same in both requests."""
    proof: bytes = b""
    """Empty in the first request."""


class ProveNodeReply(msgspec.Struct, frozen=True, array_like=True):
    """The receiver's proof; after the second request, that it has accepted the sender's."""

    node_id: NodeId
    """The receiver."""
    nonce: Nonce
    """Drawn by the receiver, the same in both replies."""
    proof: bytes
