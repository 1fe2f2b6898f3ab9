"""The outcome of commits and resets of offsets.

Pure: no clock, no I/O; changes nothing.

A commit counts if the member holds the partition, and has since the epoch of the commit. So a
commit on its way still counts when the member's epoch rises. A commit from before the partition
went to another member and came back does not. A member that holds a partition no more is refused:
its successor may be further already. Commits of one member carry a sequence, so that a delayed
commit cannot move the group back behind a later one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import final

import msgspec

from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.group import Group, Member
from tidelog.coordinator.groups.heartbeats import check_group_id
from tidelog.coordinator.groups.outcome import GroupOutcome
from tidelog.coordinator.groups.partitions import Partition
from tidelog.coordinator.groups.records import GroupRecord, OffsetsCommitted, OffsetsReset
from tidelog.coordinator.groups.targets import wants_topic
from tidelog.wire.errors import (
    BrokerError,
    GroupNotEmptyError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    PartitionNotOwnedError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.groups import (
    NO_MEMBER_EPOCH,
    CommitOffsetsReply,
    CommitOffsetsRequest,
    PartitionCommit,
    PartitionCommitted,
    PartitionWasReset,
)


class OffsetRange(msgspec.Struct, frozen=True):
    """The bounds of a partition's log, as far as the coordinator knows."""

    log_start_offset: int
    log_end_offset: int
    """Exclusive."""


CommitResult = CommitOffsetsReply | BrokerError
"""The reply to one request of a batch, or the error of the whole request."""


def commit_offsets(
    groups: Mapping[str, Group],
    requests: Sequence[CommitOffsetsRequest],
    ranges: Mapping[Partition, OffsetRange],
    *,
    config: GroupConfig,
    now_ms: int,
) -> GroupOutcome[list[CommitResult]]:
    """Return the outcome of many commits, of any members and groups, in their order.

    Args:
        groups: By id.
        requests: The commits; they become one entry of the replicated log.
        ranges: Bounds of the partitions in them, as far as they are known.
        config: Limits.
        now_ms: Unix milliseconds.
    """
    batch = _Batch(groups, ranges, config)
    results: list[CommitResult] = []
    for request in requests:
        try:
            results.append(batch.commit(request, now_ms))
        except BrokerError as error:
            results.append(error)
    return GroupOutcome(batch.records, results)


@final
class _Batch:
    """Commits in sequence, before the first of them is applied."""

    def __init__(
        self,
        groups: Mapping[str, Group],
        ranges: Mapping[Partition, OffsetRange],
        config: GroupConfig,
    ) -> None:
        self.records: list[GroupRecord] = []
        self._groups = groups
        self._ranges = ranges
        self._config = config
        self._offsets: dict[tuple[str, Partition], int] = {}
        self._sequences: dict[tuple[str, str], int] = {}

    def commit(self, request: CommitOffsetsRequest, now_ms: int) -> CommitOffsetsReply:
        group = self._groups.get(request.group_id)
        if group is None:
            check_group_id(request.group_id)
            group = Group(request.group_id, now_ms)
        member = self._committer(group, request)
        counted: list[PartitionCommit] = []
        results: list[PartitionCommitted] = []
        for commit in request.offsets:
            try:
                self._check(commit, member, request.member_epoch)
            except BrokerError as error:
                results.append(PartitionCommitted(None, error=error.to_wire()))
            else:
                results.append(self._put(group, commit))
                counted.append(commit)
        if counted:
            self._sequences[request.group_id, request.member_id] = request.sequence
            self.records.append(
                OffsetsCommitted(
                    request.group_id, request.member_id, request.sequence, now_ms, counted
                )
            )
        return CommitOffsetsReply(results)

    def _committer(self, group: Group, request: CommitOffsetsRequest) -> Member | None:
        """Return the committing member; `None` for a client without membership that may commit."""
        if not request.member_id:
            if request.member_epoch != NO_MEMBER_EPOCH:
                raise InvalidRequestError(
                    f"without a member id the member epoch is {NO_MEMBER_EPOCH},"
                    f" not {request.member_epoch}"
                )
            if group.members:
                raise GroupNotEmptyError(
                    f"group {group.group_id} has {len(group.members)} members, only they can"
                    " commit; join it, or stop them first"
                )
            return None
        member = group.members.get(request.member_id)
        if member is None or member.is_away:
            raise UnknownMemberError(
                f"group {group.group_id} has no member {request.member_id}, it was fenced or has"
                " left; other members process its uncommitted records again"
            )
        if request.member_epoch > member.member_epoch:
            raise InvalidRequestError(
                f"member {request.member_id} is at epoch {member.member_epoch}, it cannot know of"
                f" {request.member_epoch}"
            )
        key = (request.group_id, request.member_id)
        last = self._sequences.get(key, member.commit_sequence)
        if request.sequence < last:
            raise StaleMemberEpochError(
                f"commit {request.sequence} of member {request.member_id} was overtaken by commit"
                f" {last}",
                member_epoch=member.member_epoch,
            )
        return member

    def _check(self, commit: PartitionCommit, member: Member | None, member_epoch: int) -> None:
        partition = (commit.topic_id, commit.partition)
        size = len(commit.metadata.encode())
        if size > self._config.offset_metadata_max_bytes:
            raise InvalidRequestError(
                f"the metadata of partition {commit.partition} has {size} bytes, it may have"
                f" {self._config.offset_metadata_max_bytes}"
            )
        if member is not None:
            check_holding(member, partition, member_epoch)
        check_range(partition, commit.offset, self._ranges)

    def _put(self, group: Group, commit: PartitionCommit) -> PartitionCommitted:
        partition = (commit.topic_id, commit.partition)
        key = (group.group_id, partition)
        previous = self._offsets.get(key)
        if previous is None:
            before = group.committed(partition)
            previous = None if before is None else before.offset
        self._offsets[key] = commit.offset
        return PartitionCommitted(previous, previous is not None and commit.offset < previous)


def check_holding(member: Member, partition: Partition, member_epoch: int) -> None:
    """Check that a member has held a partition ever since it was at this epoch.

    Raises:
        PartitionNotOwnedError: The member does not hold the partition.
        StaleMemberEpochError: The member did not hold it in between.
    """
    held_since = member.held.get(partition)
    if held_since is None:
        raise PartitionNotOwnedError(
            f"member {member.member_id} does not hold partition {partition[1]}, so it cannot"
            " commit there; the new owner may be further already"
        )
    if member_epoch < held_since:
        raise StaleMemberEpochError(
            f"the commit of partition {partition[1]} is from epoch {member_epoch}, before the"
            f" partition came back in epoch {held_since}",
            member_epoch=held_since,
        )


def check_range(partition: Partition, offset: int, ranges: Mapping[Partition, OffsetRange]) -> None:
    """Check that an offset lies in the log of its partition, or at its end.

    Raises:
        UnknownTopicIdError: The partition is not known here.
        OffsetOutOfRangeError: The offset is outside the log; the text has both bounds.
    """
    offset_range = ranges.get(partition)
    if offset_range is None:
        raise UnknownTopicIdError(f"partition {partition[1]} of this topic id is not known here")
    if not offset_range.log_start_offset <= offset <= offset_range.log_end_offset:
        raise OffsetOutOfRangeError(
            f"offset {offset} is not in partition {partition[1]}, which has"
            f" {offset_range.log_start_offset} to {offset_range.log_end_offset}",
            log_start_offset=offset_range.log_start_offset,
            log_end_offset=offset_range.log_end_offset,
        )


def reset_offsets(
    group: Group,
    offsets: Sequence[tuple[str, PartitionCommit]],
    ranges: Mapping[Partition, OffsetRange],
    *,
    now_ms: int,
) -> GroupOutcome[list[PartitionWasReset]]:
    """Return the outcome of a reset of a group; all of it is applied, or nothing.

    Args:
        group: The group.
        offsets: Each with the name of its topic.
        ranges: Bounds of the partitions in them.
        now_ms: Unix milliseconds.

    Raises:
        GroupNotEmptyError: Members read one of these topics now.
        OffsetOutOfRangeError: An offset is not in its log.
        UnknownTopicIdError: A partition is not known here.
    """
    _check_no_readers(group, {name for name, _ in offsets}, {one.topic_id for _, one in offsets})
    results: list[PartitionWasReset] = []
    for _, commit in offsets:
        partition = (commit.topic_id, commit.partition)
        check_range(partition, commit.offset, ranges)
        before = group.committed(partition)
        results.append(PartitionWasReset(None if before is None else before.offset, commit.offset))
    records = [OffsetsReset(group.group_id, now_ms, [one for _, one in offsets])]
    return GroupOutcome(records if offsets else [], results)


def _check_no_readers(group: Group, names: set[str], topic_ids: set[bytes]) -> None:
    readers = [
        member.member_id
        for member in group.members.values()
        if any(topic_id in topic_ids for topic_id, _ in member.held)
        or _wants_any(member, sorted(names))
    ]
    if readers:
        raise GroupNotEmptyError(
            f"{len(readers)} members of group {group.group_id} read"
            f" {', '.join(sorted(names))}, among them {readers[0]}; stop them first"
        )


def _wants_any(member: Member, names: Iterable[str]) -> bool:
    return any(wants_topic(member.subscription, name) for name in names)
