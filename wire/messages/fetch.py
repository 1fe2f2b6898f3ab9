"""Messages that read records.

Pure: declarations.
"""

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import ByteCount, Listed, Milliseconds


class PartitionFetch(msgspec.Struct, frozen=True, array_like=True):
    """What to read from one partition."""

    topic_id: bytes
    partition: int
    fetch_offset: int
    """First offset wanted."""
    max_bytes: ByteCount
    """Read about so much from this partition; one batch is returned however large it is."""
    from_follower: bool = False
    """Whether a broker that follows may answer as well, up to the high watermark that it knows.
    Since version 2."""


class FetchRequest(msgspec.Struct, frozen=True, array_like=True):
    """Read whole batches from some partitions, waiting for data if there is too little."""

    max_wait_ms: Milliseconds
    """Answer after this time at the latest, with what is there."""
    min_bytes: ByteCount
    """Answer at once when so many bytes are there, or when any partition has an error."""
    max_bytes: ByteCount
    """Stop at about so many bytes in all; at least one batch is returned if there is one."""
    partitions: Listed[PartitionFetch]
    """Served in this order; put a partition last that was served first before."""
    from_journals: bool = False
    """Whether partitions of queues are meant, and what their journals say of messages is wanted.
    Only leaders answer. Since version 3."""


class PartitionFetched(msgspec.Struct, frozen=True, array_like=True):
    """What one partition had."""

    batch_bytes: ByteCount
    """Length of its batches in the attachment, in the order of this list. The first batch may
    begin below the offset asked for; every batch is whole."""
    high_watermark: int
    """Records below it are readable (exclusive end). Of a follower it may be below the offset asked
    for: it has not heard yet that so much is committed."""
    log_start_offset: int
    error: ErrorDetail | None = None


class FetchReply(msgspec.Struct, frozen=True, array_like=True):
    """The results, in the order of the request."""

    results: list[PartitionFetched]
