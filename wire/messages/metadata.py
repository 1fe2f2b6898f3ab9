"""Messages about the addresses of brokers and the leaders of partitions.

Pure: declarations.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import LongListed


class MetadataRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for topics and the leaders of their partitions."""

    topics: LongListed[str] | None
    """Names; `None` asks for all topics."""


class BrokerAddress(msgspec.Struct, frozen=True, array_like=True):
    """One broker of the cluster."""

    node_id: int
    host: str
    port: int
    rack: str = ""
    """Failure domain of the broker; empty for a rack of its own. Since version 3."""


class PartitionMetadata(msgspec.Struct, frozen=True, array_like=True):
    """Leader and ISR of one partition."""

    partition: int
    leader_id: int | None
    """The leader, `None` while the partition has none."""
    leader_epoch: int
    in_sync_replicas: list[int] | None = None
    """Node ids of the ISR. Since version 3; `None` before."""


class TopicMetadata(msgspec.Struct, frozen=True, array_like=True):
    """One topic, or an error."""

    name: str
    topic_id: bytes
    """16 bytes, never reused for another topic; empty with an error."""
    partitions: list[PartitionMetadata]
    """All partitions, in order."""
    error: ErrorDetail | None = None


class MetadataReply(msgspec.Struct, frozen=True, array_like=True):
    """The cluster, as known to the replying broker."""

    cluster_id: str
    brokers: list[BrokerAddress]
    topics: list[TopicMetadata]
    """In the order of the request; sorted by name if the request was for all."""
    controller_id: int | None = None
    """The controller, which serves requests about groups; `None` while none is known. Since version
    2."""
    batch_format: int = 1
    """Highest format version of batches that leaders accept. Since version 4; 1 before."""
