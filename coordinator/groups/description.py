"""Descriptions of groups for administrators: lists, details, committed offsets.

Pure functions over the committed state: no clock, no I/O.
"""

from collections.abc import Iterator, Mapping, Sequence

from tidelog.coordinator.groups.group import Group, Member
from tidelog.coordinator.groups.lag import LogBounds, partition_lag
from tidelog.coordinator.groups.partitions import Partition, pack
from tidelog.wire.config.group_config import effective_group_settings
from tidelog.wire.errors import UnknownGroupError
from tidelog.wire.messages.groups import (
    DescribedGroup,
    DescribedMember,
    GroupListing,
    ListGroupsReply,
    PartitionCommittedOffset,
    PartitionProgress,
    TopicPartitions,
)


def list_groups(groups: Mapping[str, Group], states: Sequence[str] | None) -> ListGroupsReply:
    """Return groups in short, by id; only those in one of `states`, all with `None`."""
    listings = [
        GroupListing(group_id, group.state, len(group.members), _assignor(group), group.overrides)
        for group_id, group in sorted(groups.items())
    ]
    return ListGroupsReply([one for one in listings if states is None or one.state in states])


def describe_group(
    groups: Mapping[str, Group],
    group_id: str,
    logs: Mapping[Partition, LogBounds],
    *,
    now_ms: int,
) -> DescribedGroup:
    """Return one group in full; an unknown group has an error in its description.

    Args:
        groups: By id.
        group_id: The group to describe.
        logs: Bounds of the partitions in `partitions_of`, where the leader could be reached.
        now_ms: Unix milliseconds.
    """
    group = groups.get(group_id)
    if group is None:
        error = UnknownGroupError(f"there is no group {group_id!r}").to_wire()
        return DescribedGroup(group_id, "", "", 0, 0, [], [], error)
    return DescribedGroup(
        group_id,
        group.state,
        _assignor(group),
        group.group_epoch,
        group.target_epoch,
        [_describe_member(group, member) for member in group.members.values()],
        [_progress(group, one, logs.get(one), now_ms=now_ms) for one in partitions_of(group)],
        config=effective_group_settings(group.overrides),
        config_overrides=sorted(group.overrides),
    )


def partitions_of(group: Group) -> list[Partition]:
    """Return the partitions with a reader or a committed offset, in order."""
    committed = {
        (topic_id, number) for topic_id, offsets in group.offsets.items() for number in offsets
    }
    return sorted(committed | group.owner.keys())


def fetch_offsets(
    group: Group | None, partitions: Sequence[TopicPartitions] | None
) -> Iterator[PartitionCommittedOffset]:
    """Yield the committed offsets of a group; an unknown group has none.

    Args:
        group: The group; `None` without one.
        partitions: The partitions; `None` for all with a committed offset.
    """
    if partitions is not None:
        for topic in partitions:
            for number in topic.partitions:
                yield _committed_offset(group, (topic.topic_id, number))
    elif group is not None:
        for partition in partitions_of(group):
            found = _committed_offset(group, partition)
            if found.offset is not None:
                yield found


def _assignor(group: Group) -> str:
    return group.assignor if group.members else ""


def _describe_member(group: Group, member: Member) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.instance_id,
        member.incarnation,
        member.member_epoch,
        group.member_state(member),
        member.subscription,
        pack(member.readable()),
        pack(member.revoking),
        pack(group.target(member.member_id)),
    )


def _progress(
    group: Group, partition: Partition, log: LogBounds | None, *, now_ms: int
) -> PartitionProgress:
    owner = group.owner.get(partition)
    at = group.committed(partition)
    offset = None if at is None else at.offset
    lag = None if log is None else partition_lag(offset, log, now_ms)
    return PartitionProgress(
        *partition,
        None if owner is None else owner.member_id,
        offset,
        None if log is None else log.log_start_offset,
        None if log is None else log.high_watermark,
        None if lag is None else lag.records,
        None if lag is None else lag.time_ms,
        None if at is None else at.time_ms,
        "" if at is None else at.metadata,
    )


def _committed_offset(group: Group | None, partition: Partition) -> PartitionCommittedOffset:
    at = None if group is None else group.committed(partition)
    if at is None:
        return PartitionCommittedOffset(*partition, None)
    return PartitionCommittedOffset(*partition, at.offset, at.leader_epoch, at.metadata, at.time_ms)
