"""Start offsets of a consumer, and the handling of OFFSET_OUT_OF_RANGE.

Kafka: `auto.offset.reset`. A partition without a position starts according to `auto_offset_reset`.
Without that setting, reading raises `NoPositionError` until the application seeks.

An offset that retention has deleted is never reset silently, unlike in Kafka: the consumer raises
`OffsetOutOfRangeError` with both bounds and keeps its position, until the application seeks.
"""

from collections.abc import Sequence

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.list_offsets import list_offsets_at
from tidelog.client.cluster.metadata import PASSING_ERRORS
from tidelog.client.config import OffsetReset
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import NoPositionError, WireFormatError


async def reset_offsets(
    cluster: ClusterClient, partitions: Sequence[TopicPartition], reset: OffsetReset | None
) -> dict[TopicPartition, int | None]:
    """Return the offsets to start at, `None` for each partition if there is no reset policy.

    Errors are those of `list_offsets`.
    """
    if reset is None or not partitions:
        return dict.fromkeys(partitions)
    return {**await list_offsets_at(cluster, partitions, reset)}


def no_position(tp: TopicPartition) -> NoPositionError:
    """Return the error for a partition that has no position to read from."""
    return NoPositionError(
        f"{tp.topic}/{tp.partition} has no position: choose auto_offset_reset="
        f"'earliest' or 'latest', or seek"
    )


def is_fetch_retriable(error: Exception) -> bool:
    """Return whether the same offset is fetched again after an error.

    Not after OFFSET_OUT_OF_RANGE, for example: the partition fails with it, and the next read
    raises it.
    """
    return isinstance(error, (*PASSING_ERRORS, WireFormatError))
