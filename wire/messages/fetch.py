"""Messages that read records.

Pure: declarations.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import ByteCount, LongListed, Milliseconds


class PartitionFetch(msgspec.Struct, frozen=True, array_like=True):
    """A read from one partition."""

    topic_id: bytes
    partition: int
    fetch_offset: int
    """First requested offset."""
    max_bytes: ByteCount
    """Approximate limit for this partition; one batch is returned however large it is."""
    from_follower: bool = False
    """Whether a follower may answer, up to its own high watermark (KIP-392). Since version 2."""
    last_fetched_epoch: int | None = None
    """Leader epoch of the last batch that the client has read below `fetch_offset`, `None` if not
    known. The broker then checks that its log has that batch (KIP-320). Since version 4."""


class FetchRequest(msgspec.Struct, frozen=True, array_like=True):
    """Read whole batches from some partitions, waiting for data if there is too little."""

    max_wait_ms: Milliseconds
    """Latest time of the answer, with the available batches."""
    min_bytes: ByteCount
    """Bytes that let the broker answer at once; an error of a partition does so too."""
    max_bytes: ByteCount
    """Approximate limit of all partitions; at least one batch is returned if there is one."""
    partitions: LongListed[PartitionFetch]
    """Read in this order; rotate the partitions from request to request for fairness."""
    from_journals: bool = False
    """Whether to read the journals of queue partitions instead of the topic's records. Only leaders
    answer. Since version 3."""


class PartitionFetched(msgspec.Struct, frozen=True, array_like=True):
    """The result of one partition."""

    batch_bytes: ByteCount
    """Length of its batches in the attachment, in the order of this list. The first batch may
    begin below the requested offset; every batch is whole."""
    high_watermark: int
    """Exclusive end of readable records. A follower's may be below the requested offset: it learns
    the leader's high watermark later."""
    log_start_offset: int
    error: ErrorDetail | None = None


class FetchReply(msgspec.Struct, frozen=True, array_like=True):
    """The results, in the order of the request."""

    results: list[PartitionFetched]
