"""Messages by which a client and a broker get to know each other: hello and metadata.

Pure: declarations. Version 1 of every message is the one shown; a later version only appends
fields with defaults.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import ByteCount, Listed


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


class MetadataRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask where topics are."""

    topics: Listed[str] | None
    """Names; `None` asks for all topics."""


class BrokerAddress(msgspec.Struct, frozen=True, array_like=True):
    """One broker of the cluster."""

    node_id: int
    host: str
    port: int
    rack: str = ""
    """What fails together with it; empty for a rack of its own. Since version 3."""


class PartitionMetadata(msgspec.Struct, frozen=True, array_like=True):
    """Where one partition is led."""

    partition: int
    leader_id: int | None
    """The node that leads, `None` while nobody does."""
    leader_epoch: int
    in_sync_replicas: list[int] | None = None
    """Node ids of those that have what is committed. Since version 3; `None` before."""


class TopicMetadata(msgspec.Struct, frozen=True, array_like=True):
    """One topic, or why it is not there."""

    name: str
    topic_id: bytes
    """16 bytes, never used again for another topic; empty with an error."""
    partitions: list[PartitionMetadata]
    """One for each partition, in order."""
    error: ErrorDetail | None = None


class MetadataReply(msgspec.Struct, frozen=True, array_like=True):
    """The cluster as this broker knows it."""

    cluster_id: str
    brokers: list[BrokerAddress]
    topics: list[TopicMetadata]
    """In the order asked; sorted by name when all were asked."""
    controller_id: int | None = None
    """The node that leads the coordinator, where requests about groups go; `None` while none is
    known. Since version 2."""
