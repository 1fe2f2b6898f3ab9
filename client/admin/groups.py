"""Administration of consumer groups.

Shell: sends requests to the controller, and repeats them while that may help.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, final

from tidelog.client.admin.queues import name_of_setting, settings_as_text
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.metadata import partition_of
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import WireFormatError, from_wire
from tidelog.wire.messages import groups
from tidelog.wire.messages.groups import (
    AlterGroupRequest,
    DeleteGroupRequest,
    DescribeGroupsRequest,
    GroupListing,
    ListGroupsRequest,
    PartitionReset,
    PartitionWasReset,
    ResetOffsetsRequest,
    ResetTo,
)
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api

ResetPlace = Literal["earliest", "latest"] | tuple[Literal["offset", "time", "shift"], int]
"""The first readable record, the end, `("offset", n)`, `("time", unix_ms)`: the first record of
this time or later, or `("shift", n)`: n records forward, back if negative, within the log."""

_RESET_TO = {
    "offset": ResetTo.OFFSET,
    "earliest": ResetTo.EARLIEST,
    "latest": ResetTo.LATEST,
    "time": ResetTo.TIMESTAMP,
    "shift": ResetTo.SHIFT,
}


@final
@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member of a group."""

    member_id: str
    client_id: str
    instance_id: str | None
    """The name of a static member."""
    state: str
    """`stable`, `unrevoked` (has to release revoked partitions), `unreleased` (waits for partitions
    that others have not released) or `away` (a static member between two processes)."""
    member_epoch: int
    topics: tuple[str, ...]
    """Subscribed topics; empty with a pattern."""
    pattern: str | None
    assigned: tuple[TopicPartition, ...]
    """Partitions that it may read."""
    revoking: tuple[TopicPartition, ...]
    """Partitions that were revoked and are not released yet."""
    target: tuple[TopicPartition, ...]
    """Partitions that it reads at the end of the rebalance."""


@final
@dataclass(frozen=True, slots=True)
class GroupProgress:
    """Committed offset and lag of a group in one partition."""

    at: TopicPartition
    member_id: str | None
    """Member that reads the partition; `None` without one."""
    offset: int | None
    """Committed offset, of the next record to process; `None` before the first commit."""
    log_start_offset: int | None
    """`None` when the leader of the partition did not answer, as the three below."""
    high_watermark: int | None
    lag_records: int | None
    """Records from the committed offset to the high watermark; `None` also without an offset."""
    lag_ms: int | None
    """Age in milliseconds of the first record that is not processed; 0 when there is none."""
    commit_time_ms: int | None
    """Time of the last commit in Unix milliseconds."""
    metadata: str
    """Metadata that the application committed with the offset."""


@final
@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group in full."""

    group_id: str
    state: str
    """`empty`, `assigning` (members wait for a target), `reconciling` (partitions change hands) or
    `stable`."""
    assignor: str
    """Assignor in use; empty without members."""
    group_epoch: int
    """Number of changes of members, subscriptions and topics."""
    target_epoch: int
    """Group epoch for which the target assignment was computed."""
    members: tuple[MemberDescription, ...]
    partitions: tuple[GroupProgress, ...]
    """Partitions that are assigned or have a committed offset, by topic and number."""
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    """All settings in force; empty from a broker of an older version."""
    config_overrides: tuple[str, ...] = ()
    """Names of settings that differ from the defaults."""


@final
@dataclass(frozen=True, slots=True)
class OffsetMove:
    """Committed offsets of a partition before and after a reset."""

    previous_offset: int | None
    """`None` without a committed offset."""
    offset: int


async def list_groups(cluster: ClusterClient, states: Iterable[str] | None) -> list[GroupListing]:
    """See `Admin.list_groups`."""
    request = ListGroupsRequest(None if states is None else list(states))
    return (await cluster.call_controller(api.LIST_GROUPS, request, is_repeatable=True)).groups


async def describe_group(cluster: ClusterClient, group_id: str) -> GroupDescription:
    """See `Admin.describe_group`."""
    request = DescribeGroupsRequest([group_id])
    reply = await cluster.call_controller(api.DESCRIBE_GROUPS, request, is_repeatable=True)
    (found,) = reply.groups
    if found.error is not None:
        raise from_wire(found.error)
    topics = await cluster.call_any(api.METADATA, MetadataRequest(None), is_repeatable=True)
    return describe(found, {topic.topic_id: topic.name for topic in topics.topics})


async def reset_offsets(
    cluster: ClusterClient,
    group_id: str,
    partitions: str | Iterable[tuple[str, int]],
    *,
    to: ResetPlace | Mapping[TopicPartition, int],
    validate_only: bool,
) -> dict[TopicPartition, OffsetMove]:
    """See `Admin.reset_offsets`."""
    wanted = await _wanted(cluster, partitions)
    resets: list[PartitionReset] = []
    for at in wanted:
        topic = await cluster.topic(at.topic)
        partition_of(topic, at.partition)
        name, value = _target(to, at)
        resets.append(PartitionReset(topic.topic_id, at.partition, int(_RESET_TO[name]), value))
    request = ResetOffsetsRequest(group_id, resets, validate_only)

    async def attempt() -> dict[TopicPartition, OffsetMove]:
        connection = await cluster.controller_connection()
        reply = await cluster.call_once(connection, api.RESET_OFFSETS, request)
        return _moves(wanted, reply.results)

    # A shift that is applied twice leads elsewhere.
    is_shift = not isinstance(to, (str, Mapping)) and to[0] == "shift"
    is_repeatable = validate_only or not is_shift
    return await cluster.retry(attempt, is_repeatable=is_repeatable)


async def alter_group(
    cluster: ClusterClient,
    group_id: str,
    *,
    to_set: Mapping[str, str | float | None],
    to_reset: Iterable[str],
) -> dict[str, str]:
    """See `Admin.alter_group`."""
    request = AlterGroupRequest(
        group_id, settings_as_text(to_set), list(map(name_of_setting, to_reset))
    )
    reply = await cluster.call_controller(api.ALTER_GROUP, request, is_repeatable=True)
    return reply.config


async def delete_group(cluster: ClusterClient, group_id: str) -> bool:
    """See `Admin.delete_group`."""
    request = DeleteGroupRequest(group_id)
    reply = await cluster.call_controller(api.DELETE_GROUP, request, is_repeatable=True)
    return reply.was_there


async def _wanted(
    cluster: ClusterClient, partitions: str | Iterable[tuple[str, int]]
) -> Sequence[TopicPartition]:
    if not isinstance(partitions, str):
        return [TopicPartition(topic, partition) for topic, partition in partitions]
    topic = await cluster.topic(partitions)
    return [TopicPartition(partitions, number) for number in range(len(topic.partitions))]


def _target(to: ResetPlace | Mapping[TopicPartition, int], at: TopicPartition) -> tuple[str, int]:
    """Return the kind and the value of the target in one partition.

    Raises:
        ValueError: There is no offset for the partition.
    """
    if isinstance(to, str):
        return to, 0
    if not isinstance(to, Mapping):
        return to
    if at not in to:
        raise ValueError(f"no offset is given for {at.topic}/{at.partition}")
    return "offset", to[at]


def _moves(
    wanted: Sequence[TopicPartition], results: Sequence[PartitionWasReset]
) -> dict[TopicPartition, OffsetMove]:
    """Return the moves by partition.

    Raises:
        BrokerError: A partition was refused; nothing was moved.
    """
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


def describe(found: groups.DescribedGroup, names: Mapping[bytes, str]) -> GroupDescription:
    """Return a description with names of topics by id; an unknown topic keeps its id as a name."""
    partitions = [_progress(each, names) for each in found.partitions]
    return GroupDescription(
        group_id=found.group_id,
        state=found.state,
        assignor=found.assignor,
        group_epoch=found.group_epoch,
        target_epoch=found.target_epoch,
        members=tuple(_member(each, names) for each in found.members),
        partitions=tuple(sorted(partitions, key=lambda each: each.at)),
        config=found.config,
        config_overrides=tuple(found.config_overrides),
    )


def _member(found: groups.DescribedMember, names: Mapping[bytes, str]) -> MemberDescription:
    return MemberDescription(
        member_id=found.member_id,
        client_id=found.client_id,
        instance_id=found.instance_id,
        state=found.state,
        member_epoch=found.member_epoch,
        topics=tuple(found.subscription.topics),
        pattern=found.subscription.pattern,
        assigned=_places(found.assigned, names),
        revoking=_places(found.revoking, names),
        target=_places(found.target, names),
    )


def _progress(found: groups.PartitionProgress, names: Mapping[bytes, str]) -> GroupProgress:
    return GroupProgress(
        at=_place(found.topic_id, found.partition, names),
        member_id=found.member_id,
        offset=found.offset,
        log_start_offset=found.log_start_offset,
        high_watermark=found.high_watermark,
        lag_records=found.lag_records,
        lag_ms=found.lag_ms,
        commit_time_ms=found.commit_time_ms,
        metadata=found.metadata,
    )


def _places(
    packed: Iterable[groups.TopicPartitions], names: Mapping[bytes, str]
) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            _place(topic.topic_id, number, names) for topic in packed for number in topic.partitions
        )
    )


def _place(topic_id: bytes, number: int, names: Mapping[bytes, str]) -> TopicPartition:
    return TopicPartition(names.get(topic_id, topic_id.hex()), number)
