"""Administration of consumer groups.

Shell: asks the node that decides for the cluster, again while that may help.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from client.cluster import Cluster
from client.group_description import GroupDescription, OffsetMove, describe
from client.metadata import TopicPartition, partition_of
from wire import api
from wire.errors import WireFormatError, from_wire
from wire.groups import (
    DeleteGroupRequest,
    DescribeGroupsRequest,
    GroupListing,
    ListGroupsRequest,
    PartitionReset,
    PartitionWasReset,
    ResetOffsetsRequest,
    ResetTo,
)
from wire.session import MetadataRequest

ResetPlace = Literal["earliest", "latest"] | tuple[Literal["offset", "time", "shift"], int]
"""The first readable record, the end, `("offset", n)`, `("time", unix_ms)`: the first record of
this time or later, or `("shift", n)`: so many records on, or back if negative, within the log."""

_RESET_TO = {
    "offset": ResetTo.OFFSET,
    "earliest": ResetTo.EARLIEST,
    "latest": ResetTo.LATEST,
    "time": ResetTo.TIMESTAMP,
    "shift": ResetTo.SHIFT,
}


async def list_groups(cluster: Cluster, states: Iterable[str] | None) -> list[GroupListing]:
    """See `Admin.list_groups`."""
    request = ListGroupsRequest(None if states is None else list(states))
    return (await cluster.ask_controller(api.LIST_GROUPS, request, is_repeatable=True)).groups


async def describe_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """See `Admin.describe_group`."""
    request = DescribeGroupsRequest([group_id])
    reply = await cluster.ask_controller(api.DESCRIBE_GROUPS, request, is_repeatable=True)
    if len(reply.groups) != 1:
        raise WireFormatError(f"{len(reply.groups)} descriptions for one group")
    (found,) = reply.groups
    if found.error is not None:
        raise from_wire(found.error)
    topics = await cluster.ask_any(api.METADATA, MetadataRequest(None), is_repeatable=True)
    return describe(found, {topic.topic_id: topic.name for topic in topics.topics})


async def reset_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: str | Iterable[tuple[str, int]],
    to: ResetPlace,
    *,
    validate_only: bool,
) -> dict[TopicPartition, OffsetMove]:
    """See `Admin.reset_offsets`."""
    name, value = (to, 0) if isinstance(to, str) else to
    wanted = await _wanted(cluster, partitions)
    resets: list[PartitionReset] = []
    for at in wanted:
        topic = await cluster.topic(at.topic)
        partition_of(topic, at.partition)
        resets.append(PartitionReset(topic.topic_id, at.partition, int(_RESET_TO[name]), value))
    request = ResetOffsetsRequest(group_id, resets, validate_only)

    async def attempt() -> dict[TopicPartition, OffsetMove]:
        connection = await cluster.controller_connection()
        reply = await cluster.ask_once(connection, api.RESET_OFFSETS, request)
        return _moves(wanted, reply.results)

    # A shift that is carried out twice leads elsewhere.
    is_repeatable = validate_only or name != "shift"
    return await cluster.retry(attempt, is_repeatable=is_repeatable)


async def delete_group(cluster: Cluster, group_id: str) -> bool:
    """See `Admin.delete_group`."""
    request = DeleteGroupRequest(group_id)
    reply = await cluster.ask_controller(api.DELETE_GROUP, request, is_repeatable=True)
    return reply.was_there


async def _wanted(
    cluster: Cluster, partitions: str | Iterable[tuple[str, int]]
) -> Sequence[TopicPartition]:
    if not isinstance(partitions, str):
        return [TopicPartition(topic, partition) for topic, partition in partitions]
    topic = await cluster.topic(partitions)
    return [TopicPartition(partitions, number) for number in range(len(topic.partitions))]


def _moves(
    wanted: Sequence[TopicPartition], results: Sequence[PartitionWasReset]
) -> dict[TopicPartition, OffsetMove]:
    """Return what was moved.

    Raises:
        BrokerError: Of one partition; nothing was moved.
    """
    if len(results) != len(wanted):
        raise WireFormatError(f"{len(results)} results for {len(wanted)} partitions")
    moves: dict[TopicPartition, OffsetMove] = {}
    for at, result in zip(wanted, results, strict=True):
        if result.error is not None:
            error = from_wire(result.error)
            error.at = at
            raise error
        if result.offset is None:
            raise WireFormatError("a reset has neither an offset nor an error")
        moves[at] = OffsetMove(result.previous_offset, result.offset)
    return moves
