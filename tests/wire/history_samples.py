"""Samples of messages about what happened to the messages of a queue."""

from tests.wire.group_samples import TOPIC_ID
from tidelog.wire.errors import OffsetOutOfRangeError
from tidelog.wire.messages.fetch import (
    FetchReply,
    FetchRequest,
    ListOffsetsReply,
    ListOffsetsRequest,
    OffsetAt,
    PartitionFetch,
    PartitionFetched,
    PartitionOffset,
    PartitionOffsetAt,
)

FETCH_HISTORY = (
    FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        bytes_max=1 << 20,
        partitions=[PartitionFetch(TOPIC_ID, 3, fetch_offset=70_000, bytes_max=1 << 18)],
    ),
    FetchReply(
        results=[
            PartitionFetched(batch_bytes=0, high_watermark=90_000, log_start_offset=65_000),
            PartitionFetched(
                batch_bytes=0,
                high_watermark=90_000,
                log_start_offset=80_000,
                error=OffsetOutOfRangeError(
                    "offset 70000 is not in the log: it starts at 80000 and ends at 90000",
                    log_start_offset=80_000,
                    log_end_offset=90_000,
                ).to_wire(),
            ),
        ]
    ),
)
LIST_HISTORY_OFFSETS = (
    ListOffsetsRequest(
        partitions=[
            PartitionOffsetAt(TOPIC_ID, 3, OffsetAt.EARLIEST),
            PartitionOffsetAt(TOPIC_ID, 3, OffsetAt.TIMESTAMP, 1_700_000_000_000),
        ]
    ),
    ListOffsetsReply(offsets=[PartitionOffset(65_000), PartitionOffset(70_000, 1_700_000_000_004)]),
)
