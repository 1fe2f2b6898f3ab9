"""Messages that tell where brokers, topics and partitions are.

Pure: declarations.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import Listed


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
