"""What administrators are told of consumer groups, with names of topics.

Pure: declarations, and how they come of messages.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from client.metadata import TopicPartition
from wire import groups


@final
@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member of a group."""

    member_id: str
    client_name: str
    instance_id: str | None
    """The name of a static member."""
    state: str
    """`stable`, `unrevoked` (has to let go of partitions), `unreleased` (waits for partitions that
    others have not let go of) or `away` (a static member between two processes)."""
    member_epoch: int
    topics: tuple[str, ...]
    """The names that it wants to read; empty with a pattern."""
    pattern: str | None
    assigned: tuple[TopicPartition, ...]
    """What it may read."""
    revoking: tuple[TopicPartition, ...]
    """What it has to let go of and has not yet."""
    target: tuple[TopicPartition, ...]
    """What it will read when all have what they should."""


@final
@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group is in one partition, and how far behind."""

    at: TopicPartition
    member_id: str | None
    """Who reads it; `None` if nobody does."""
    offset: int | None
    """Of the next record to process, as committed; `None` when nothing was."""
    log_start_offset: int | None
    """`None` when the leader of the partition could not be asked, as the three below."""
    high_watermark: int | None
    lag_records: int | None
    """Records from the committed offset to the high watermark; `None` also without an offset."""
    lag_ms: int | None
    """Age of the first record that is not processed; 0 when there is none."""
    commit_time_ms: int | None
    """Unix milliseconds of the last commit."""
    metadata: str
    """What the application committed with the offset."""


@final
@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group in full."""

    group_id: str
    state: str
    """`empty`, `assigning` (members wait for a target), `reconciling` (partitions change hands) or
    `stable`."""
    assignor: str
    """In use; empty without members."""
    group_epoch: int
    """Counts changes of members, subscriptions and topics."""
    target_epoch: int
    """The group epoch for which the target assignment was computed."""
    members: tuple[MemberDescription, ...]
    partitions: tuple[GroupProgress, ...]
    """Those that somebody reads or that something was committed for, by topic and number."""


@final
@dataclass(frozen=True, slots=True)
class OffsetMove:
    """Where a reset moved a group in one partition."""

    previous_offset: int | None
    """`None` if nothing was committed."""
    offset: int


def describe(found: groups.GroupDescription, names: Mapping[bytes, str]) -> GroupDescription:
    """Return a description with the names of topics, by their id; unknown ids stand for them."""
    partitions = [_progress(each, names) for each in found.partitions]
    return GroupDescription(
        group_id=found.group_id,
        state=found.state,
        assignor=found.assignor,
        group_epoch=found.group_epoch,
        target_epoch=found.target_epoch,
        members=tuple(_member(each, names) for each in found.members),
        partitions=tuple(sorted(partitions, key=lambda each: each.at)),
    )


def _member(found: groups.MemberDescription, names: Mapping[bytes, str]) -> MemberDescription:
    return MemberDescription(
        member_id=found.member_id,
        client_name=found.client_name,
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
