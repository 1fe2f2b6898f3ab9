"""Records of consumer groups: what changed, as it stands in the replicated log.

Pure: declarations. New fields are appended, with defaults that mean what was meant before.
"""

import msgspec

from tidelog.wire.messages.groups import PartitionCommit, Subscription, TopicPartitions


class MemberJoined(msgspec.Struct, frozen=True, array_like=True, tag="member-joined"):
    """A member is there; the group has a new epoch, which the member begins with."""

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
    """A member wants to read something else than before; the group has a new epoch."""

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
    """A newer process of a static member replaces the older one, and has all that one was given."""

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
    """What one member will read when all have reconciled."""

    member_id: str
    partitions: list[TopicPartitions]


class TargetComputed(msgspec.Struct, frozen=True, array_like=True, tag="target-computed"):
    """The group has a target assignment for its epoch.

    Members that already have what the target gives them are at its epoch with this.
    """

    group_id: str
    target_epoch: int
    assignor: str
    topic_names: dict[bytes, str]
    """By topic id, of all topics that somebody will read."""
    changed: list[MemberTarget]
    """Members whose target is another one than before."""


class AssignmentChanged(msgspec.Struct, frozen=True, array_like=True, tag="assignment-changed"):
    """A member is given partitions, is told to let go of some, or has let go of some."""

    group_id: str
    member_id: str
    member_epoch: int
    given: list[TopicPartitions]
    revoking: list[TopicPartitions]
    """To be let go of."""
    released: list[TopicPartitions]
    """Were to be let go of, and now are."""


class OffsetsCommitted(msgspec.Struct, frozen=True, array_like=True, tag="offsets-committed"):
    """A group is so far."""

    group_id: str
    member_id: str
    """Empty for a program that is no member."""
    sequence: int
    time_ms: int
    """Unix milliseconds."""
    offsets: list[PartitionCommit]


class OffsetsReset(msgspec.Struct, frozen=True, array_like=True, tag="offsets-reset"):
    """Somebody moved a group to other offsets."""

    group_id: str
    time_ms: int
    offsets: list[PartitionCommit]


class TopicForgotten(msgspec.Struct, frozen=True, array_like=True, tag="topic-forgotten"):
    """A topic was deleted; nobody has offsets in it any more."""

    topic_id: bytes


class GroupDeleted(msgspec.Struct, frozen=True, array_like=True, tag="group-deleted"):
    """A group and its offsets are gone."""

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
    | GroupDeleted
)
