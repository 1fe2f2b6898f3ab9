"""Messages of consumer groups: heartbeats, committed offsets, administration.

Pure: declarations.
"""

from enum import IntEnum

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import (
    Listed,
    LongListed,
    Milliseconds,
    Settings,
    StoredList,
)

JOIN_EPOCH = 0
"""Member epoch of a heartbeat that joins."""
LEAVE_EPOCH = -1
"""Member epoch of a heartbeat of a member that leaves for good and has revoked all partitions."""
STATIC_LEAVE_EPOCH = -2
"""Member epoch of a heartbeat of a static member that restarts and returns within its session; it
has revoked all partitions, and the group keeps them for it."""
NO_MEMBER_EPOCH = -1
"""Member epoch of a commit by a client that is no member of the group."""


class TopicPartitions(msgspec.Struct, frozen=True, array_like=True):
    """Some partitions of one topic."""

    topic_id: bytes
    partitions: StoredList[int]
    """Numbers, ascending."""


class AssignedTopic(msgspec.Struct, frozen=True, array_like=True):
    """A member's assigned partitions of one topic."""

    topic: str
    """The name; a member that subscribes by pattern learns it here."""
    topic_id: bytes
    partitions: list[int]
    """Numbers, ascending."""


class Subscription(msgspec.Struct, frozen=True, array_like=True):
    """A member's subscription: names of topics, or a pattern for names."""

    topics: StoredList[str] = []
    """Names; topics that do not exist yet are read as soon as they do."""
    pattern: str | None = None
    """Globs with commas: topics whose whole name matches one; see `docs/groups.md`.
    With a pattern, `topics` is empty."""


class GroupHeartbeatRequest(msgspec.Struct, frozen=True, array_like=True):
    """A member's heartbeat: its session, its subscription and its owned partitions (KIP-848)."""

    group_id: str
    """1 to 249 characters."""
    member_id: str
    """1 to 64 characters, random, drawn by the member. It serves one membership: a fenced member
    joins again under a new id."""
    member_epoch: int
    """Epoch of the last reply, or `JOIN_EPOCH`, `LEAVE_EPOCH` or `STATIC_LEAVE_EPOCH`."""
    assignment_revision: int = 0
    """Revision of the last assignment that the member has seen; 0 before the first. The member has
    revoked the partitions that this assignment removed and that are missing in `owned`."""
    owned: Listed[TopicPartitions] | None = None
    """Partitions that the member reads or has not finished; `None`: as in the heartbeat before."""
    subscription: Subscription | None = None
    """The member's subscription; `None`: as before. Required to join."""
    subscription_version: int = 0
    """Grows with each change of the subscription; a delayed older version is ignored."""
    assignor: str = "uniform"
    """The assignor that the member prefers: `uniform` or `range`. The group uses the preference of
    most members. Read only together with a subscription."""
    rebalance_timeout_ms: Milliseconds = 300_000
    """Maximum time to revoke partitions before the member is fenced. Read only together with a
    subscription."""
    busy_for_ms: Milliseconds = 0
    """Extension of the poll interval: so long the application works on records, and the member may
    neither send heartbeats nor revoke partitions; 0 without an extension."""
    instance_id: str | None = None
    """Name of a static member, the same after each restart of its process; 1 to 249 characters."""
    incarnation: int = 0
    """Grows with each start of a static member's process, such as the wall clock in milliseconds at
    start: a higher incarnation takes over from a lower one at once."""
    client_id: str = ""
    """Name of the client in descriptions."""


class GroupHeartbeatReply(msgspec.Struct, frozen=True, array_like=True):
    """The group's answer to a heartbeat: epoch, lease and assignment."""

    member_epoch: int
    """Epoch for the next heartbeat and for commits; -1 after the member has left."""
    assignment_revision: int
    """Revision of the member's assignment. A lower revision than before means an old reply."""
    heartbeat_interval_ms: Milliseconds
    """Time to the next heartbeat; it is due earlier after a revocation."""
    lease_ms: Milliseconds
    """Time from the sending of the heartbeat in which no other member is assigned the member's
    partitions, unless a newer incarnation takes over or a rebalance timeout expires."""
    assignment: list[AssignedTopic] | None = None
    """All partitions of the member from now on; `None` if it has seen this revision. The member
    must revoke missing partitions: finish, commit, and leave them out of `owned`."""


class PartitionCommit(msgspec.Struct, frozen=True, array_like=True):
    """An offset to commit in one partition."""

    topic_id: bytes
    partition: int
    offset: int
    """Offset of the next record to process (exclusive end of processed records)."""
    leader_epoch: int | None = None
    """Leader epoch of the last record processed, `None` if not known."""
    metadata: str = ""
    """Metadata of the application; at most 4096 bytes of UTF-8."""


class CommitOffsetsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Commit offsets of a group; durable on a majority when the reply comes."""

    group_id: str
    member_id: str
    """Empty for a client that is no member; it may commit while the group has no members."""
    member_epoch: int
    """Epoch of the member at the commit; `NO_MEMBER_EPOCH` for a client that is no member."""
    sequence: int
    """Grows with each commit of a member, and stays the same for a retry. A commit that a later one
    overtook is refused, so that delays never move a group back."""
    offsets: Listed[PartitionCommit]


class PartitionCommitted(msgspec.Struct, frozen=True, array_like=True):
    """Result of the commit of one partition."""

    previous_offset: int | None
    """The committed offset before; `None` without one, or with an error."""
    has_moved_back: bool = False
    """The new offset is lower than the one before: records will be processed again."""
    error: ErrorDetail | None = None


class CommitOffsetsReply(msgspec.Struct, frozen=True, array_like=True):
    """The results, in the order of the request."""

    results: list[PartitionCommitted]


class FetchOffsetsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the committed offsets of a group."""

    group_id: str
    partitions: LongListed[TopicPartitions] | None = None
    """`None` asks for all partitions with a committed offset."""


class PartitionCommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """The committed offset of a group in one partition."""

    topic_id: bytes
    partition: int
    offset: int | None
    """Offset of the next record to process; `None` without a commit."""
    leader_epoch: int | None = None
    metadata: str = ""
    commit_time_ms: int = 0
    """Unix milliseconds, by the clock of the coordinator."""


class FetchOffsetsReply(msgspec.Struct, frozen=True, array_like=True):
    """The offsets, in the order of the request, or by topic id and number."""

    offsets: list[PartitionCommittedOffset]


class GroupListing(msgspec.Struct, frozen=True, array_like=True):
    """One group in short."""

    group_id: str
    state: str
    """`empty`, `assigning` (members wait for a target), `reconciling` (partitions change hands) or
    `stable`."""
    member_count: int
    assignor: str
    """The assignor in use; empty without members."""
    overrides: dict[str, str] = {}
    """Settings that differ from the defaults. Since version 2."""


class ListGroupsRequest(msgspec.Struct, frozen=True, array_like=True):
    """List the groups."""

    states: Listed[str] | None = None
    """Only groups in one of these states; `None`: all."""


class ListGroupsReply(msgspec.Struct, frozen=True, array_like=True):
    """The groups, by id."""

    groups: list[GroupListing]


class DescribeGroupsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for members, partitions and lag of groups."""

    group_ids: Listed[str]


class DescribedMember(msgspec.Struct, frozen=True, array_like=True):
    """One member of a group."""

    member_id: str
    client_id: str
    instance_id: str | None
    incarnation: int
    member_epoch: int
    state: str
    """`stable`, `unrevoked` (must revoke partitions), `unreleased` (waits for partitions that other
    members have not revoked yet) or `away` (a static member between two processes)."""
    subscription: Subscription
    assigned: list[TopicPartitions]
    """Partitions that the member may read."""
    revoking: list[TopicPartitions]
    """Partitions that the member must revoke and has not revoked yet."""
    target: list[TopicPartitions]
    """Partitions of the member when all members have reconciled."""


class PartitionProgress(msgspec.Struct, frozen=True, array_like=True):
    """The committed offset and the lag of a group in one partition."""

    topic_id: bytes
    partition: int
    member_id: str | None
    """The member that reads the partition; `None` without one."""
    offset: int | None
    """Committed offset; `None` without a commit."""
    log_start_offset: int | None
    """`None` if the leader of the partition did not answer, as for the three fields below."""
    high_watermark: int | None
    lag_records: int | None
    """Records from the committed offset to the high watermark; `None` also without an offset."""
    lag_ms: int | None
    """Age of the first unprocessed record in ms; 0 without one."""
    commit_time_ms: int | None
    """Unix milliseconds of the last commit."""
    metadata: str = ""


class DescribedGroup(msgspec.Struct, frozen=True, array_like=True):
    """One group in full."""

    group_id: str
    state: str
    """As in `GroupListing`; empty with an error."""
    assignor: str
    group_epoch: int
    """Counts changes of members, subscriptions and topics."""
    target_epoch: int
    """The group epoch for which the target assignment was computed."""
    members: list[DescribedMember]
    partitions: list[PartitionProgress]
    error: ErrorDetail | None = None
    config: dict[str, str] = {}
    """All settings in force. Since version 2."""
    config_overrides: list[str] = []
    """Names of settings that differ from the defaults. Since version 2."""


class DescribeGroupsReply(msgspec.Struct, frozen=True, array_like=True):
    """The groups, in the order of the request."""

    groups: list[DescribedGroup]


class ResetTo(IntEnum):
    """Target of an offset reset."""

    OFFSET = 0
    """To the offset in `value`."""
    EARLIEST = 1
    """To the log start offset."""
    LATEST = 2
    """To the high watermark."""
    TIMESTAMP = 3
    """To the first record with the timestamp in `value` (Unix milliseconds) or a later one."""
    SHIFT = 4
    """By `value` records, negative for back, from the committed offset; within the log."""


class PartitionReset(msgspec.Struct, frozen=True, array_like=True):
    """Target of an offset reset in one partition."""

    topic_id: bytes
    partition: int
    to: int
    """A `ResetTo`."""
    value: int = 0
    """An offset, a time or a number of records; see `ResetTo`."""


class ResetOffsetsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Reset the committed offsets of a group that does not read these topics now."""

    group_id: str
    partitions: LongListed[PartitionReset]
    validate_only: bool = False
    """Whether to return the result without a change."""


class PartitionWasReset(msgspec.Struct, frozen=True, array_like=True):
    """Committed offsets before and after a reset in one partition."""

    previous_offset: int | None
    """`None` without a commit, or with an error."""
    offset: int | None
    """`None` with an error."""
    error: ErrorDetail | None = None


class ResetOffsetsReply(msgspec.Struct, frozen=True, array_like=True):
    """The results, in the order of the request; either all resets apply, or none."""

    results: list[PartitionWasReset]


class AlterGroupRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change settings of one group, which is created if it is missing; durable on reply."""

    group_id: str
    set_config: Settings
    """Settings to set."""
    reset_config: Listed[str]
    """Settings to reset to their defaults."""


class AlterGroupReply(msgspec.Struct, frozen=True, array_like=True):
    """The settings after the change."""

    config: dict[str, str]


class DeleteGroupRequest(msgspec.Struct, frozen=True, array_like=True):
    """Delete a group without members, and its committed offsets."""

    group_id: str


class DeleteGroupReply(msgspec.Struct, frozen=True, array_like=True):
    """The group is deleted."""

    was_there: bool
    """False if no such group existed, perhaps because the request is a retry."""
