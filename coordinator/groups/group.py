"""One consumer group: its members, their current and target assignment, its committed offsets.

Pure: no clock, no I/O. Changed by records only; `apply` of the state machine calls its methods.

Three epochs, all counting up: the *group epoch* counts changes of members, subscriptions and
topics; the *target epoch* is the group epoch of the target assignment; a *member epoch* is the
target epoch that a member has reached. Each member also has a *revision*, which counts changes of
the partitions that it may read, so that both sides know what the other has seen.
"""

from collections.abc import Iterable
from typing import final

import msgspec

from tidelog.coordinator.groups.partitions import Partition, pack, unpack
from tidelog.coordinator.groups.records import (
    AssignmentChanged,
    MemberJoined,
    OffsetsCommitted,
    OffsetsReset,
    StaticMemberReplaced,
    SubscriptionChanged,
    TargetComputed,
)
from tidelog.wire.messages.groups import (
    AssignedTopic,
    PartitionCommit,
    Subscription,
    TopicPartitions,
)

_NOTHING: frozenset[Partition] = frozenset()


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """The committed offset of a group in one partition."""

    offset: int
    """Offset of the next record to process."""
    leader_epoch: int | None
    metadata: str
    time_ms: int
    """Unix milliseconds of the commit."""


class MemberSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A member in a snapshot; fields as in `Member`."""

    member_id: str
    subscription: Subscription
    subscription_version: int
    assignor: str
    rebalance_timeout_ms: int
    instance_id: str | None
    incarnation: int
    client_id: str
    is_away: bool
    joined_epoch: int
    member_epoch: int
    revision: int
    commit_sequence: int
    held: list[tuple[bytes, int, int]]
    """Topic id, number, and the member epoch in which it was assigned."""
    revoking: list[TopicPartitions]
    target: list[TopicPartitions]


class GroupSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A group in a snapshot; fields as in `Group`."""

    group_id: str
    group_epoch: int
    target_epoch: int
    assignor: str
    topic_names: dict[bytes, str]
    empty_since_ms: int
    members: list[MemberSnapshot]
    offsets: list[tuple[bytes, list[tuple[int, int, int | None, str, int]]]]
    """By topic id: number, offset, leader epoch, metadata, time."""
    overrides: dict[str, str] = {}


@final
class Member:
    """One member.

    Invariant: `revoking` is part of `held`. It may read `held` without `revoking`.
    """

    __slots__ = (
        "assignor",
        "client_id",
        "commit_sequence",
        "held",
        "incarnation",
        "instance_id",
        "is_away",
        "joined_epoch",
        "member_epoch",
        "member_id",
        "rebalance_timeout_ms",
        "revision",
        "revoking",
        "subscription",
        "subscription_version",
    )

    def __init__(self, member_id: str, subscription: Subscription) -> None:
        """Start without partitions."""
        self.member_id = member_id
        self.subscription = subscription
        self.subscription_version = 0
        self.assignor = ""
        self.rebalance_timeout_ms = 0
        self.instance_id: str | None = None
        self.incarnation = 0
        self.client_id = ""
        self.is_away = False
        """The process of this static member ended and is expected back."""
        self.joined_epoch = 0
        """First member epoch. A heartbeat with an older one is from a fenced member, which a
        delayed copy of its first heartbeat let in again."""
        self.member_epoch = 0
        self.revision = 1
        self.commit_sequence = 0
        """Sequence of its last commit; lower ones are refused."""
        self.held: dict[Partition, int] = {}
        """Partitions that no other member may get, with the member epoch in which it got them."""
        self.revoking: set[Partition] = set()
        """Partitions that it was told to revoke."""

    def readable(self) -> list[Partition]:
        """Return the partitions that it may read."""
        if not self.revoking:
            return list(self.held)
        return [partition for partition in self.held if partition not in self.revoking]


@final
class Group:
    """One consumer group.

    Invariants: a partition is held by one member at most, the one in `owner`; the target gives a
    partition to one member at most; `target_epoch <= group_epoch`; no epoch ever falls.
    """

    def __init__(self, group_id: str, empty_since_ms: int) -> None:
        """Start without members."""
        self.group_id = group_id
        self.group_epoch = 0
        self.target_epoch = 0
        self.assignor = ""
        """The assignor that computed the target."""
        self.members: dict[str, Member] = {}
        """By id, in the order in which they joined; a replacement takes the place of the former
        member."""
        self.by_instance: dict[str, Member] = {}
        """Static members, by instance id."""
        self.owner: dict[Partition, Member] = {}
        self.topic_names: dict[bytes, str] = {}
        """Names of the topics in the target, by topic id."""
        self.offsets: dict[bytes, dict[int, CommittedOffset]] = {}
        self.empty_since_ms = empty_since_ms
        """Unix milliseconds at which the last member left, or a non-member last committed."""
        self.overrides: dict[str, str] = {}
        """Settings that differ from the defaults, as text."""
        self._target: dict[str, frozenset[Partition]] = {}

    def target(self, member_id: str) -> frozenset[Partition]:
        """Return the partitions of a member after reconciliation."""
        return self._target.get(member_id, _NOTHING)

    def is_settled(self, member: Member) -> bool:
        """Return whether a member has exactly its target partitions, and knows their epoch."""
        return (
            member.member_epoch >= self.target_epoch
            and not member.revoking
            # No partition outside of the target is held in the target's epoch.
            and len(member.held) == len(self.target(member.member_id))
        )

    def assignment(self, partitions: Iterable[Partition]) -> list[AssignedTopic]:
        """Return partitions with the names of their topics."""
        return [
            AssignedTopic(self.topic_names[topic.topic_id], topic.topic_id, topic.partitions)
            for topic in pack(partitions)
        ]

    def committed(self, partition: Partition) -> CommittedOffset | None:
        """Return the committed offset of a partition; `None` without one."""
        return self.offsets.get(partition[0], {}).get(partition[1])

    def member_state(self, member: Member) -> str:
        """Return a member's state in a word: see `wire.messages.groups.MemberDescription.state`."""
        if member.is_away:
            return "away"
        if member.revoking:
            return "unrevoked"
        has_all = len(member.held) >= len(self.target(member.member_id))
        return "stable" if has_all or member.member_epoch < self.target_epoch else "unreleased"

    @property
    def state(self) -> str:
        """The group's state in a word: see `wire.messages.groups.GroupListing.state`."""
        if not self.members:
            return "empty"
        if self.target_epoch < self.group_epoch:
            return "assigning"
        is_stable = all(self.is_settled(member) for member in self.members.values())
        return "stable" if is_stable else "reconciling"

    def join(self, record: MemberJoined) -> None:
        """Apply the record."""
        member = Member(record.member_id, record.subscription)
        member.subscription_version = record.subscription_version
        member.assignor = record.assignor
        member.rebalance_timeout_ms = record.rebalance_timeout_ms
        member.instance_id = record.instance_id
        member.incarnation = record.incarnation
        member.client_id = record.client_id
        self.group_epoch = record.group_epoch
        member.joined_epoch = member.member_epoch = record.group_epoch
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.by_instance[member.instance_id] = member

    def change_subscription(self, record: SubscriptionChanged) -> None:
        """Apply the record."""
        member = self.members[record.member_id]
        member.subscription = record.subscription
        member.subscription_version = record.subscription_version
        member.assignor = record.assignor
        member.rebalance_timeout_ms = record.rebalance_timeout_ms
        self.group_epoch = record.group_epoch

    def on_static_member_replaced(self, record: StaticMemberReplaced) -> None:
        """Apply the record: the same member under another id, with the same partitions."""
        member = self.members[record.old_member_id]
        self._release(member, member.revoking)
        member.member_id = record.member_id
        member.incarnation = record.incarnation
        member.client_id = record.client_id
        member.is_away = False
        member.revision += 1
        member.commit_sequence = 0
        member.subscription_version = 0
        self.members = {one.member_id: one for one in self.members.values()}
        if record.old_member_id in self._target:
            self._target[record.member_id] = self._target.pop(record.old_member_id)

    def on_static_member_left(self, member_id: str) -> None:
        """Mark a static member as away; its revoking partitions are released."""
        member = self.members[member_id]
        member.is_away = True
        self._release(member, member.revoking)

    def leave(self, member_id: str, group_epoch: int, time_ms: int) -> None:
        """Remove a member with all its partitions."""
        member = self.members.pop(member_id)
        if member.instance_id is not None:
            del self.by_instance[member.instance_id]
        self._release(member, set(member.held))
        self._target.pop(member_id, None)
        self.group_epoch = group_epoch
        if not self.members:
            self.empty_since_ms = time_ms

    def set_target(self, record: TargetComputed) -> None:
        """Apply the record."""
        self.target_epoch = record.target_epoch
        self.assignor = record.assignor
        in_use = {topic_id for topic_id, _ in self.owner}
        # Names of topics that members still have to revoke stay known.
        self.topic_names = {
            topic_id: name for topic_id, name in self.topic_names.items() if topic_id in in_use
        } | record.topic_names
        for change in record.changed:
            self._target[change.member_id] = frozenset(unpack(change.partitions))
        for member in self.members.values():
            # A member that has its target partitions has reached it: no record, no heartbeat
            # needed.
            if not member.revoking and member.held.keys() == self.target(member.member_id):
                member.member_epoch = record.target_epoch

    def change_assignment(self, record: AssignmentChanged) -> None:
        """Apply the record."""
        member = self.members[record.member_id]
        released = unpack(record.released)
        given = unpack(record.given)
        revoking = unpack(record.revoking)
        self._release(member, released)
        member.member_epoch = record.member_epoch
        for partition in given:
            assert partition not in self.owner, f"{partition} is assigned twice"
            self.owner[partition] = member
            member.held[partition] = record.member_epoch
        member.revoking.update(revoking)
        if given or revoking:
            member.revision += 1

    def commit(self, record: OffsetsCommitted | OffsetsReset) -> None:
        """Apply the record."""
        if isinstance(record, OffsetsCommitted) and record.member_id:
            # A member that left in between has no sequence to record.
            member = self.members.get(record.member_id)
            if member is not None:
                member.commit_sequence = record.sequence
        elif not self.members:
            self.empty_since_ms = record.time_ms
        for commit in record.offsets:
            self._put(commit, record.time_ms)

    def forget_topic(self, topic_id: bytes) -> None:
        """Drop the offsets of a topic that was deleted."""
        self.offsets.pop(topic_id, None)

    def snapshot(self) -> GroupSnapshot:
        """Return the whole group, in order."""
        return GroupSnapshot(
            self.group_id,
            self.group_epoch,
            self.target_epoch,
            self.assignor,
            self.topic_names,
            self.empty_since_ms,
            [self._member_snapshot(member) for member in self.members.values()],
            [
                (
                    topic_id,
                    [
                        (number, at.offset, at.leader_epoch, at.metadata, at.time_ms)
                        for number, at in sorted(offsets.items())
                    ],
                )
                for topic_id, offsets in sorted(self.offsets.items())
            ],
            self.overrides,
        )

    @classmethod
    def restore(cls, snapshot: GroupSnapshot) -> "Group":
        """Restore a group from its snapshot."""
        group = cls(snapshot.group_id, snapshot.empty_since_ms)
        group.group_epoch = snapshot.group_epoch
        group.target_epoch = snapshot.target_epoch
        group.assignor = snapshot.assignor
        group.topic_names = snapshot.topic_names
        group.overrides = snapshot.overrides
        for saved in snapshot.members:
            group._restore_member(saved)
        for topic_id, offsets in snapshot.offsets:
            group.offsets[topic_id] = {
                number: CommittedOffset(offset, leader_epoch, metadata, time_ms)
                for number, offset, leader_epoch, metadata, time_ms in offsets
            }
        return group

    def _member_snapshot(self, member: Member) -> MemberSnapshot:
        return MemberSnapshot(
            member.member_id,
            member.subscription,
            member.subscription_version,
            member.assignor,
            member.rebalance_timeout_ms,
            member.instance_id,
            member.incarnation,
            member.client_id,
            member.is_away,
            member.joined_epoch,
            member.member_epoch,
            member.revision,
            member.commit_sequence,
            [(*partition, epoch) for partition, epoch in sorted(member.held.items())],
            pack(member.revoking),
            pack(self.target(member.member_id)),
        )

    def _restore_member(self, saved: MemberSnapshot) -> None:
        member = Member(saved.member_id, saved.subscription)
        member.subscription_version = saved.subscription_version
        member.assignor = saved.assignor
        member.rebalance_timeout_ms = saved.rebalance_timeout_ms
        member.instance_id = saved.instance_id
        member.incarnation = saved.incarnation
        member.client_id = saved.client_id
        member.is_away = saved.is_away
        member.joined_epoch = saved.joined_epoch
        member.member_epoch = saved.member_epoch
        member.revision = saved.revision
        member.commit_sequence = saved.commit_sequence
        member.held = {(topic_id, number): epoch for topic_id, number, epoch in saved.held}
        member.revoking = set(unpack(saved.revoking))
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.by_instance[member.instance_id] = member
        for partition in member.held:
            self.owner[partition] = member
        if saved.target:
            self._target[member.member_id] = frozenset(unpack(saved.target))

    def _release(self, member: Member, partitions: Iterable[Partition]) -> None:
        for partition in list(partitions):
            del self.owner[partition]
            del member.held[partition]
            member.revoking.discard(partition)

    def _put(self, commit: PartitionCommit, time_ms: int) -> None:
        self.offsets.setdefault(commit.topic_id, {})[commit.partition] = CommittedOffset(
            commit.offset, commit.leader_epoch, commit.metadata, time_ms
        )
