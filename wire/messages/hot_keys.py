"""Messages about hot partitions, hot keys of topics, and the largest message groups of queues.

Pure: declarations.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import Listed

HOT_KEYS_MAX = 64
"""Maximum keys or groups of one partition in a reply."""


class HotKeysRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for partitions of a topic or queue that the asked broker leads."""

    topic_id: bytes
    """Id of a topic or of a queue."""
    partitions: Listed[int]
    limit: int = 10
    """Maximum keys or groups for each partition, up to 64; 0 asks for traffic only."""


class HotKey(msgspec.Struct, frozen=True, array_like=True):
    """A frequent key, from a sample of the recent batches of its partition."""

    key: bytes
    """The key, or its first 128 bytes."""
    key_bytes: int
    """Length of the whole key in bytes."""
    share: float
    """Estimated share of the partition's records, from 0 to 1."""
    error_bound: float
    """Maximum error of `share`: what the counters may have added, and two standard errors of the
    sample."""


class HotGroup(msgspec.Struct, frozen=True, array_like=True):
    """A message group of a queue."""

    key: bytes
    """The key of the group, or its first 128 bytes."""
    key_bytes: int
    """Length of the whole key in bytes."""
    message_count: int
    """Messages that are neither deleted nor moved, in any state."""
    not_visible_count: int
    """Messages in flight or delayed among them."""


class PartitionHotKeys(msgspec.Struct, frozen=True, array_like=True):
    """Traffic and hot keys of one partition of a topic, or message groups of one of a queue."""

    partition: int
    received_bytes_per_s: float = 0.0
    """Recent bytes of produced batches per second; older traffic counts half after 30 s."""
    received_records_per_s: float = 0.0
    sent_bytes_per_s: float = 0.0
    """Recent bytes of batches per second that consumers fetched or received."""
    is_hot: bool = False
    """Whether it has had far more traffic than the others of its topic for a minute."""
    is_sampled: bool = False
    """Whether the broker samples keys."""
    keyless_share: float = 0.0
    """Estimated share of records without a key, from 0 to 1."""
    keys: list[HotKey] = []
    """Keys with the largest shares of the last minutes, the largest first."""
    groups: list[HotGroup] = []
    """Groups with the most messages now, the largest first; none if the queue has no groups."""
    error: ErrorDetail | None = None

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second in both directions."""
        return self.received_bytes_per_s + self.sent_bytes_per_s


class HotKeysReply(msgspec.Struct, frozen=True, array_like=True):
    """The partitions in the order of the request."""

    partitions: list[PartitionHotKeys]
