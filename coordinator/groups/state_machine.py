"""The replicated state machine of all consumer groups.

Pure: no clock, no I/O. Methods that return a `GroupOutcome` answer a command and change nothing;
`apply` is the only change. Its safety does not depend on a clock: sessions and timeouts are in
`coordinator.groups.sessions`, and arrive as the command that fences a member.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import final

import msgspec

from tidelog.coordinator.groups.commits import (
    CommitResult,
    OffsetRange,
    commit_offsets,
    reset_offsets,
)
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.group import Group, GroupSnapshot
from tidelog.coordinator.groups.heartbeats import answer_heartbeat, check_group_id, removal
from tidelog.coordinator.groups.outcome import GroupOutcome
from tidelog.coordinator.groups.partitions import Partition
from tidelog.coordinator.groups.records import (
    AssignmentChanged,
    GroupAltered,
    GroupDeleted,
    GroupRecord,
    GroupTouched,
    MemberJoined,
    MemberLeft,
    OffsetsCommitted,
    OffsetsReset,
    StaticMemberLeft,
    StaticMemberReplaced,
    SubscriptionChanged,
    TargetComputed,
    TopicForgotten,
)
from tidelog.coordinator.groups.targets import TopicShape, compute_target, is_concerned, is_outdated
from tidelog.wire.config.durations import portable_settings
from tidelog.wire.config.group_config import (
    check_group_setting_name,
    effective_group_settings,
    group_settings,
)
from tidelog.wire.errors import GroupNotEmptyError, InvalidConfigError, UnknownGroupError
from tidelog.wire.messages.groups import (
    CommitOffsetsRequest,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    PartitionCommit,
    PartitionWasReset,
)


class GroupsSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """All groups in a snapshot, by id."""

    groups: list[GroupSnapshot]


@final
class ConsumerGroups:
    """The state of all consumer groups."""

    def __init__(self, config: GroupConfig | None = None) -> None:
        """Start without groups."""
        self.config = config or GroupConfig()
        self._groups: dict[str, Group] = {}

    @property
    def groups(self) -> Mapping[str, Group]:
        """All groups, by id; read-only."""
        return self._groups

    def group(self, group_id: str) -> Group:
        """Return a group.

        Raises:
            UnknownGroupError: There is no group with this id.
        """
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownGroupError(
                f"there is no group {group_id!r}; a group is created when its first member"
                " joins or commits"
            )
        return group

    def heartbeat(
        self, request: GroupHeartbeatRequest, now_ms: int
    ) -> GroupOutcome[GroupHeartbeatReply]:
        """Return the outcome of a heartbeat; errors as in `answer_heartbeat`."""
        group = self._groups.get(request.group_id) or Group(request.group_id, now_ms)
        return answer_heartbeat(group, request, self.config, now_ms=now_ms)

    def fence(self, group_id: str, member_id: str, now_ms: int) -> GroupOutcome[None]:
        """Remove a member whose session has ended; it may be removed already."""
        group = self._groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return GroupOutcome([], None)
        return GroupOutcome([removal(group, member, now_ms)], None)

    def compute_target(self, group_id: str, topics: Mapping[str, TopicShape]) -> GroupOutcome[None]:
        """Compute the target of a group, unless it has one for its epoch."""
        group = self._groups.get(group_id)
        target = None if group is None else compute_target(group, topics)
        return GroupOutcome([] if target is None else [target], None)

    def topics_changed(self, names: Iterable[str]) -> GroupOutcome[None]:
        """Raise the epoch of groups that read these topics, which were created, deleted or grew."""
        changed = list(names)
        return GroupOutcome(
            [
                GroupTouched(group_id, group.group_epoch + 1)
                for group_id, group in self._groups.items()
                if is_concerned(group, changed)
            ],
            None,
        )

    def forget_topic(self, topic_id: bytes) -> GroupOutcome[None]:
        """Drop the offsets of a topic that was deleted."""
        is_known = any(topic_id in group.offsets for group in self._groups.values())
        return GroupOutcome([TopicForgotten(topic_id)] if is_known else [], None)

    def catch_up(self, topics: Mapping[str, TopicShape]) -> GroupOutcome[None]:
        """Complete the work of the previous coordinator for topics that changed.

        Args:
            topics: All topics, by name.
        """
        there = {shape.topic_id for shape in topics.values()}
        known = {topic_id for group in self._groups.values() for topic_id in group.offsets}
        records: list[GroupRecord] = [TopicForgotten(one) for one in sorted(known - there)]
        records += [
            GroupTouched(group_id, group.group_epoch + 1)
            for group_id, group in self._groups.items()
            if is_outdated(group, topics)
        ]
        return GroupOutcome(records, None)

    def commit_offsets(
        self,
        requests: Sequence[CommitOffsetsRequest],
        ranges: Mapping[Partition, OffsetRange],
        now_ms: int,
    ) -> GroupOutcome[list[CommitResult]]:
        """Return the outcome of many commits, in their order; see `commits.commit_offsets`."""
        return commit_offsets(self._groups, requests, ranges, config=self.config, now_ms=now_ms)

    def reset_offsets(
        self,
        group_id: str,
        offsets: Sequence[tuple[str, PartitionCommit]],
        ranges: Mapping[Partition, OffsetRange],
        *,
        now_ms: int,
    ) -> GroupOutcome[list[PartitionWasReset]]:
        """Return the outcome of a reset; see `commits.reset_offsets`.

        An unknown group is created: so a position can be set before the start.
        """
        check_group_id(group_id)
        group = self._groups.get(group_id) or Group(group_id, now_ms)
        return reset_offsets(group, offsets, ranges, now_ms=now_ms)

    def alter_group(
        self,
        group_id: str,
        set_overrides: Mapping[str, str],
        reset_overrides: Collection[str],
        *,
        now_ms: int,
    ) -> GroupOutcome[dict[str, str]]:
        """Change settings of a group; the reply has all settings in force.

        An unknown group is created: so alerts can be set before the first member joins.

        Args:
            group_id: The group.
            set_overrides: Settings to set.
            reset_overrides: Names of settings to reset to their defaults.
            now_ms: Unix milliseconds.

        Raises:
            InvalidConfigError: A setting is unknown, not legal, or set and reset.
            InvalidRequestError: The id is invalid.
        """
        check_group_id(group_id)
        for name in reset_overrides:
            check_group_setting_name(name)
            if name in set_overrides:
                raise InvalidConfigError(f"{name} cannot be set and reset at the same time")
        group_settings(set_overrides)
        group = self._groups.get(group_id)
        before = {} if group is None else group.overrides
        kept = {name: text for name, text in before.items() if name not in reset_overrides}
        overrides = {**kept, **portable_settings(set_overrides)}
        records = [] if overrides == before else [GroupAltered(group_id, now_ms, overrides)]
        return GroupOutcome(records, effective_group_settings(overrides))

    def delete_group(self, group_id: str) -> GroupOutcome[bool]:
        """Delete a group; the reply tells whether it existed.

        Raises:
            GroupNotEmptyError: The group has members.
        """
        group = self._groups.get(group_id)
        if group is None:
            return GroupOutcome([], reply=False)
        if group.members:
            raise GroupNotEmptyError(
                f"group {group_id} has {len(group.members)} members; stop them first"
            )
        return GroupOutcome([GroupDeleted(group_id)], reply=True)

    def apply(self, record: GroupRecord) -> None:  # noqa: C901, PLR0912 (a branch for each record)
        """Apply a record; the only way in which groups change."""
        match record:
            case MemberJoined():
                self._existing_or_new(record.group_id).join(record)
            case SubscriptionChanged():
                self._groups[record.group_id].change_subscription(record)
            case StaticMemberReplaced():
                self._groups[record.group_id].on_static_member_replaced(record)
            case StaticMemberLeft():
                self._groups[record.group_id].on_static_member_left(record.member_id)
            case MemberLeft():
                self._groups[record.group_id].leave(
                    record.member_id, record.group_epoch, record.time_ms
                )
            case GroupTouched():
                self._groups[record.group_id].group_epoch = record.group_epoch
            case TargetComputed():
                self._groups[record.group_id].set_target(record)
            case AssignmentChanged():
                self._groups[record.group_id].change_assignment(record)
            case OffsetsCommitted() | OffsetsReset():
                self._existing_or_new(record.group_id, record.time_ms).commit(record)
            case TopicForgotten():
                for group in self._groups.values():
                    group.forget_topic(record.topic_id)
            case GroupAltered():
                group = self._existing_or_new(record.group_id, record.time_ms)
                group.overrides = record.overrides
            case GroupDeleted():
                del self._groups[record.group_id]

    def snapshot(self) -> GroupsSnapshot:
        """Return the whole state; a replica restored from it continues as this one."""
        return GroupsSnapshot([group.snapshot() for group in self._groups.values()])

    @classmethod
    def restore(
        cls, snapshot: GroupsSnapshot, config: GroupConfig | None = None
    ) -> "ConsumerGroups":
        """Restore the state from a snapshot."""
        groups = cls(config)
        for saved in snapshot.groups:
            groups._groups[saved.group_id] = Group.restore(saved)
        return groups

    def _existing_or_new(self, group_id: str, empty_since_ms: int = 0) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id, empty_since_ms)
        return group
