"""Lookup of offsets by place or time.

Shell: asks the leader of each partition, and repeats that while it may help.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.metadata import partition_of
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    LeaderNotAvailableError,
    NotLeaderError,
    UnknownPartitionError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.division import divided
from tidelog.wire.messages.offset_ranges import (
    ListOffsetsReply,
    ListOffsetsRequest,
    OffsetQuery,
    PartitionOffsets,
)
from tidelog.wire.protocol import api

OffsetSpec = Literal["earliest", "latest"] | int
"""The first readable record, the high watermark, or the first record of this time (Unix
milliseconds) or later."""

_Queries = dict[TopicPartition, OffsetQuery]


class PartitionOffset(NamedTuple):
    """Offset at a place of a partition."""

    offset: int | None
    """`None` when no record is that young."""
    timestamp_ms: int | None = None
    """Timestamp of the record found, when a time was given."""


async def list_offsets(
    cluster: ClusterClient, places: Mapping[TopicPartition, OffsetSpec]
) -> dict[TopicPartition, PartitionOffset]:
    """Return the offsets of these places; `None` if no record is that young.

    Raises:
        UnknownTopicError: There is no such topic.
        UnknownPartitionError: The topic does not have the partition.
        TidelogError: Brokers refused or did not answer.
    """

    async def attempt() -> dict[TopicPartition, PartitionOffset]:
        found: dict[TopicPartition, PartitionOffset] = {}
        for leader_id, queries in (await _queries_by_leader(cluster, places)).items():
            connection = await cluster.connection_to(leader_id)
            for part in divided(list(queries)):
                request = ListOffsetsRequest([queries[at] for at in part])
                reply = await cluster.call_once(connection, api.LIST_OFFSETS, request)
                for at, offsets in zip(part, checked_offsets(reply, len(part)), strict=True):
                    found[at] = offset_at(places[at], offsets)
        return found

    return await cluster.retry(attempt, is_repeatable=True)


def checked_offsets(reply: ListOffsetsReply, count: int) -> list[PartitionOffsets]:
    """Return the answers to `count` queries, after checking that none failed.

    Raises:
        WireFormatError: The number of answers differs.
        BrokerError: The first error of a partition.
    """
    if len(reply.partitions) != count:
        raise WireFormatError(f"{len(reply.partitions)} offsets for {count} questions")
    for offsets in reply.partitions:
        if offsets.error is not None:
            error = from_wire(offsets.error)
            if isinstance(error, UnknownPartitionError):
                # The metadata have it: it is new, and this broker does not know it yet.
                raise LeaderNotAvailableError(str(error)) from error
            raise error
    return reply.partitions


def check_caught_up(offsets: PartitionOffsets) -> None:
    """Check that a high watermark is as high as that of earlier leaders.

    Raises:
        LeaderNotAvailableError: The leader is new; a retry helps.
    """
    if not offsets.has_caught_up:
        raise LeaderNotAvailableError(
            "the partition has a new leader that does not know the high watermark yet"
        )


def offset_at(place: OffsetSpec, offsets: PartitionOffsets) -> PartitionOffset:
    """Return the offset at a place of a partition.

    Raises:
        LeaderNotAvailableError: The leader does not know the high watermark yet.
    """
    if place == "earliest":
        return PartitionOffset(offsets.log_start_offset)
    if place == "latest":
        check_caught_up(offsets)
        return PartitionOffset(offsets.high_watermark)
    return PartitionOffset(offsets.offset, offsets.timestamp_ms)


async def list_offsets_at(
    cluster: ClusterClient, partitions: Sequence[TopicPartition], place: OffsetSpec
) -> dict[TopicPartition, int]:
    """Return the offsets to start from; the end if no record is that young.

    Errors are those of `list_offsets`.
    """
    found = await list_offsets(cluster, dict.fromkeys(partitions, place))
    offsets = {at: answer.offset for at, answer in found.items() if answer.offset is not None}
    missing = [at for at in partitions if at not in offsets]
    if missing:
        offsets |= await list_offsets_at(cluster, missing, "latest")
    return offsets


async def _queries_by_leader(
    cluster: ClusterClient, places: Mapping[TopicPartition, OffsetSpec]
) -> dict[int, _Queries]:
    by_leader: dict[int, _Queries] = {}
    for at, place in places.items():
        topic = await cluster.topic(at.topic)
        leader_id = partition_of(topic, at.partition).leader_id
        if leader_id is None:
            raise NotLeaderError(f"{at.topic}/{at.partition} has no leader now")
        by_leader.setdefault(leader_id, {})[at] = offset_query(topic.topic_id, at.partition, place)
    return by_leader


def offset_query(topic_id: bytes, partition: int, place: OffsetSpec) -> OffsetQuery:
    """Return the query for the offset at a place."""
    if isinstance(place, str):
        return OffsetQuery(topic_id, partition)
    return OffsetQuery(topic_id, partition, at_timestamp_ms=place)
