"""The records of consumer groups in the replicated log, and their feature levels.

Pure: declarations. New fields are appended, with defaults that keep the earlier meaning.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidelog.wire.messages.groups import PartitionCommit, Subscription, TopicPartitions


class MemberJoined(msgspec.Struct, frozen=True, array_like=True, tag="member-joined"):
    """A member has joined; the group has a new epoch, which is the member's first."""

    group_id: str
    group_epoch: int
    member_id: str
    subscription: Subscription
    subscription_version: int
    assignor: str
    rebalance_timeout_ms: int
    instance_id: str | None = None
    incarnation: int = 0
    client_id: str = ""


class SubscriptionChanged(msgspec.Struct, frozen=True, array_like=True, tag="subscription-changed"):
    """A member has another subscription; the group has a new epoch."""

    group_id: str
    group_epoch: int
    member_id: str
    subscription: Subscription
    subscription_version: int
    assignor: str
    rebalance_timeout_ms: int


class StaticMemberReplaced(
    msgspec.Struct, frozen=True, array_like=True, tag="static-member-replaced"
):
    """A newer process of a static member replaces the older one, with all its partitions."""

    group_id: str
    old_member_id: str
    member_id: str
    incarnation: int
    client_id: str = ""


class StaticMemberLeft(msgspec.Struct, frozen=True, array_like=True, tag="static-member-left"):
    """The process of a static member ended; its partitions wait for the next one."""

    group_id: str
    member_id: str


class MemberLeft(msgspec.Struct, frozen=True, array_like=True, tag="member-left"):
    """A member left or was fenced; the group has a new epoch."""

    group_id: str
    group_epoch: int
    member_id: str
    time_ms: int
    """Unix milliseconds; the group is empty since then, if this was the last member."""


class GroupTouched(msgspec.Struct, frozen=True, array_like=True, tag="group-touched"):
    """Topics of the group changed; the group has a new epoch."""

    group_id: str
    group_epoch: int


class MemberTarget(msgspec.Struct, frozen=True, array_like=True):
    """The partitions of one member after reconciliation."""

    member_id: str
    partitions: list[TopicPartitions]


class TargetComputed(msgspec.Struct, frozen=True, array_like=True, tag="target-computed"):
    """The group has a target assignment for its epoch.

    Members that already have their target partitions reach its epoch by this record.
    """

    group_id: str
    target_epoch: int
    assignor: str
    topic_names: dict[bytes, str]
    """Names by topic id, of all topics in the target."""
    changed: list[MemberTarget]
    """Members with a changed target."""


class AssignmentChanged(msgspec.Struct, frozen=True, array_like=True, tag="assignment-changed"):
    """A member gets partitions, is told to revoke some, or has released some."""

    group_id: str
    member_id: str
    member_epoch: int
    given: list[TopicPartitions]
    revoking: list[TopicPartitions]
    """Partitions to revoke."""
    released: list[TopicPartitions]
    """Revoked partitions that are released now."""


class OffsetsCommitted(msgspec.Struct, frozen=True, array_like=True, tag="offsets-committed"):
    """Offsets of a group are committed."""

    group_id: str
    member_id: str
    """Empty for a client without membership."""
    sequence: int
    time_ms: int
    """Unix milliseconds."""
    offsets: list[PartitionCommit]


class OffsetsReset(msgspec.Struct, frozen=True, array_like=True, tag="offsets-reset"):
    """An administrator reset a group to other offsets."""

    group_id: str
    time_ms: int
    offsets: list[PartitionCommit]


class TopicForgotten(msgspec.Struct, frozen=True, array_like=True, tag="topic-forgotten"):
    """A topic was deleted; no group has offsets in it any more."""

    topic_id: bytes


class GroupAltered(msgspec.Struct, frozen=True, array_like=True, tag="group-altered"):
    """The settings of a group have changed; an unknown group is created without members."""

    group_id: str
    time_ms: int
    """Unix milliseconds."""
    overrides: dict[str, str]
    """All settings that differ from the defaults, not only the changed ones."""


class GroupDeleted(msgspec.Struct, frozen=True, array_like=True, tag="group-deleted"):
    """A group and its offsets are deleted."""

    group_id: str


GroupRecord = (
    MemberJoined
    | SubscriptionChanged
    | StaticMemberReplaced
    | StaticMemberLeft
    | MemberLeft
    | GroupTouched
    | TargetComputed
    | AssignmentChanged
    | OffsetsCommitted
    | OffsetsReset
    | TopicForgotten
    | GroupAltered
    | GroupDeleted
)

GROUP_RECORD_LEVELS: Final[Mapping[type[GroupRecord], int]] = {GroupAltered: 3}
"""Feature level of each kind of record that the first version did not know."""


def group_records_level(records: Iterable[GroupRecord]) -> int:
    """Return the lowest feature level of a cluster that may write these records."""
    level = 0
    for each in records:
        level = max(level, GROUP_RECORD_LEVELS.get(type(each), 0))
    return level
