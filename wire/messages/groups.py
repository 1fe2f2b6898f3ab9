"""Messages of consumer groups: heartbeats, committed offsets, administration.

Pure: declarations.
"""

from enum import IntEnum

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import Listed, Milliseconds

JOIN_EPOCH = 0
"""As the member epoch of a heartbeat: the member wants to join."""
LEAVE_EPOCH = -1
"""As the member epoch of a heartbeat: the member leaves for good and has let go of everything."""
STATIC_LEAVE_EPOCH = -2
"""As the member epoch of a heartbeat: a static member goes away and comes back within its session;
it has let go of everything, and its partitions wait for it."""
NO_MEMBER_EPOCH = -1
"""As the member epoch of a commit: whoever commits is no member of the group."""


class TopicPartitions(msgspec.Struct, frozen=True, array_like=True):
    """Some partitions of one topic."""

    topic_id: bytes
    partitions: Listed[int]
    """Numbers, ascending."""


class AssignedTopic(msgspec.Struct, frozen=True, array_like=True):
    """What a member is to read of one topic."""

    topic: str
    """The name, which a member that subscribes by pattern has no other way to know."""
    topic_id: bytes
    partitions: list[int]
    """Numbers, ascending."""


class Subscription(msgspec.Struct, frozen=True, array_like=True):
    """What a member wants to read: names, or a pattern for names."""

    topics: Listed[str] = []
    """Names; topics that do not exist yet are read as soon as they do."""
    pattern: str | None = None
    """Globs with commas: topics whose whole name matches one; see `docs/groups.md`.
    With a pattern, `topics` is empty."""


class GroupHeartbeatRequest(msgspec.Struct, frozen=True, array_like=True):
    """All that a member ever says to its group: I am here, this I want, this I have."""

    group_id: str
    """1 to 249 characters."""
    member_id: str
    """1 to 64 characters, random, drawn by the member; used for one membership: who was fenced
    joins again under a new one."""
    member_epoch: int
    """As in the last reply; `JOIN_EPOCH`, `LEAVE_EPOCH` or `STATIC_LEAVE_EPOCH`."""
    assignment_revision: int = 0
    """Revision of the last assignment that the member has seen; 0 before the first. The member has
    let go of whatever that assignment took away once it is missing in `owned`."""
    owned: Listed[TopicPartitions] | None = None
    """All that the member reads or has not finished with; `None`: as in the heartbeat before."""
    subscription: Subscription | None = None
    """What the member wants to read; `None`: as before. Required to join."""
    subscription_version: int = 0
    """Grows with each change of the subscription; an older one, which was delayed, is ignored."""
    assignor: str = "uniform"
    """The assignor that the member prefers: `uniform` or `range`. What most members prefer is
    used. Counts together with a subscription."""
    rebalance_timeout_ms: Milliseconds = 300_000
    """How long the member may take to let go of partitions before it is fenced. Counts together
    with a subscription."""
    busy_for_ms: Milliseconds = 0
    """The application is at work on records and asks not to be missed for so long, even if no
    heartbeat can be sent or nothing can be let go of; 0 when it is not."""
    instance_id: str | None = None
    """Name of a static member, the same after each restart of its process; 1 to 249 characters."""
    incarnation: int = 0
    """Grows with each start of the process of a static member: a higher one takes over at once from
    a lower one, such as the wall clock in milliseconds at start."""
    client_id: str = ""
    """For people, in descriptions."""


class GroupHeartbeatReply(msgspec.Struct, frozen=True, array_like=True):
    """All that a group ever says to its member."""

    member_epoch: int
    """To be sent with the next heartbeat and with commits; -1 after the member has left."""
    assignment_revision: int
    """Revision of the member's assignment. A lower one than seen before is an old reply."""
    heartbeat_interval_ms: Milliseconds
    """Send the next heartbeat after this time, or as soon as something was let go of."""
    lease_ms: Milliseconds
    """Counted from when the heartbeat was sent: for so long nobody else is given the member's
    partitions, unless a newer incarnation takes over or a timeout for letting go runs out."""
    assignment: list[AssignedTopic] | None = None
    """All that the member is to read from now on; `None` when it has seen this revision. What is
    missing must be let go of: finish, commit, and leave it out of `owned`."""


class PartitionCommit(msgspec.Struct, frozen=True, array_like=True):
    """How far a group is in one partition."""

    topic_id: bytes
    partition: int
    offset: int
    """Offset of the next record to process (exclusive end of what is done)."""
    leader_epoch: int | None = None
    """Leader epoch of the last record processed, `None` if not known."""
    metadata: str = ""
    """For the application; at most 4096 bytes of UTF-8."""


class CommitOffsetsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Store how far a group is; durable on a majority when the reply comes."""

    group_id: str
    member_id: str
    """Empty for a program that is no member; such may commit while the group has no members."""
    member_epoch: int
    """Of the member when it commits; `NO_MEMBER_EPOCH` for a program that is no member."""
    sequence: int
    """Grows from commit to commit of one member, and stays when a commit is sent again. A commit
    that was overtaken by a later one is refused, so that delays never move a group back."""
    offsets: Listed[PartitionCommit]


class PartitionCommitted(msgspec.Struct, frozen=True, array_like=True):
    """What became of the commit of one partition."""

    previous_offset: int | None
    """What was committed before; `None` if nothing was, or with an error."""
    has_moved_back: bool = False
    """The new offset is lower than the one before: records will be processed again."""
    error: ErrorDetail | None = None


class CommitOffsetsReply(msgspec.Struct, frozen=True, array_like=True):
    """The results, in the order of the request."""

    results: list[PartitionCommitted]


class FetchOffsetsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask how far a group is."""

    group_id: str
    partitions: Listed[TopicPartitions] | None = None
    """`None` asks for all partitions that something was committed for."""


class PartitionCommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """How far a group is in one partition."""

    topic_id: bytes
    partition: int
    offset: int | None
    """Offset of the next record to process; `None` when nothing was committed."""
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


class ListGroupsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask which groups there are."""

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
    """`stable`, `unrevoked` (has to let go of partitions), `unreleased` (waits for partitions that
    others have not let go of) or `away` (a static member between two processes)."""
    subscription: Subscription
    assigned: list[TopicPartitions]
    """What it may read."""
    revoking: list[TopicPartitions]
    """What it has to let go of and has not yet."""
    target: list[TopicPartitions]
    """What it will read when all have reconciled."""


class PartitionProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far a group is in one partition, and how far behind."""

    topic_id: bytes
    partition: int
    member_id: str | None
    """Who reads it; `None` if nobody does."""
    offset: int | None
    """Committed; `None` when nothing was."""
    log_start_offset: int | None
    """`None` when the leader of the partition could not be asked, as the three below."""
    high_watermark: int | None
    lag_records: int | None
    """Records from the committed offset to the high watermark; `None` also without an offset."""
    lag_ms: int | None
    """Age of the first record that is not processed; 0 when there is none."""
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


class DescribeGroupsReply(msgspec.Struct, frozen=True, array_like=True):
    """The groups, in the order of the request."""

    groups: list[DescribedGroup]


class ResetTo(IntEnum):
    """Where a reset moves a group."""

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
    """Where to move a group in one partition."""

    topic_id: bytes
    partition: int
    to: int
    """A `ResetTo`."""
    value: int = 0
    """An offset, a time or a number of records; see `ResetTo`."""


class ResetOffsetsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Move a group that does not read these topics now to other offsets."""

    group_id: str
    partitions: Listed[PartitionReset]
    validate_only: bool = False
    """Say what would happen and change nothing."""


class PartitionWasReset(msgspec.Struct, frozen=True, array_like=True):
    """Where a group was and is in one partition."""

    previous_offset: int | None
    """`None` if nothing was committed, or with an error."""
    offset: int | None
    """`None` with an error."""
    error: ErrorDetail | None = None


class ResetOffsetsReply(msgspec.Struct, frozen=True, array_like=True):
    """The results, in the order of the request; all are carried out, or none."""

    results: list[PartitionWasReset]


class DeleteGroupRequest(msgspec.Struct, frozen=True, array_like=True):
    """Forget a group without members, and all its offsets."""

    group_id: str


class DeleteGroupReply(msgspec.Struct, frozen=True, array_like=True):
    """The group is gone."""

    was_there: bool
    """False when there was no such group, perhaps because this is not the first attempt."""
