"""Membership protocol of a consumer group (KIP-848): heartbeats, and the effects of replies.

Pure: decides, given the time; no clock, no I/O; entropy is handed in. Times are monotonic seconds.

A shell sends each heartbeat that `next_heartbeat` returns, reports its end with `answered` or
`failed`, and handles the events in their order: `PartitionsRevoked` (finish, commit, call back,
then `released`), `PartitionsAssigned` (call back, find positions, read), `PartitionsLost` (stop,
call back, commit nothing), `MembershipEnded`. Revoked partitions are released before new ones are
assigned.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from tidelog.client.cluster.backoff import Backoff
from tidelog.wire.errors import (
    ConnectionLostError,
    RetriableError,
    TidelogError,
    UnknownMemberError,
    WireFormatError,
)
from tidelog.wire.messages.groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    AssignedTopic,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    Subscription,
    TopicPartitions,
)

_BACKOFF_S = 0.1
_BACKOFF_MAX_S = 2.0
_INTERVAL_MIN_S = 0.1
"""Minimum of the interval between heartbeats, which is that of a broker's setting."""
_EARLINESS = 0.1
"""Maximum part of the interval by which heartbeats are early, so that members spread out."""


class GroupPartition(NamedTuple):
    """Partition with its topic's id."""

    topic: str
    topic_id: bytes
    partition: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """Settings of a member that never change."""

    group_id: str
    instance_id: str | None = None
    """Name of a static member, the same after each restart."""
    incarnation: int = 0
    """Grows with each start of a static member's process."""
    client_id: str = ""
    assignor: str = "uniform"
    rebalance_timeout: float = 300.0
    """Maximum seconds for releasing revoked partitions."""


@final
@dataclass(frozen=True, slots=True)
class HeartbeatDue:
    """Heartbeat to be sent now."""

    number: int
    request: GroupHeartbeatRequest


@final
@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """Finish with these partitions, commit, then call `released`."""

    partitions: tuple[GroupPartition, ...]


@final
@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """Read these partitions from now on."""

    partitions: tuple[GroupPartition, ...]


@final
@dataclass(frozen=True, slots=True)
class PartitionsLost:
    """These partitions belong to other members already: stop, commit nothing."""

    partitions: tuple[GroupPartition, ...]


@final
@dataclass(frozen=True, slots=True)
class MembershipEnded:
    """The membership is over; `error` is `None` when the member left on purpose."""

    error: TidelogError | None


MembershipEvent = PartitionsRevoked | PartitionsAssigned | PartitionsLost | MembershipEnded


class _Reported(NamedTuple):
    """Assignment that a heartbeat reports."""

    revision: int
    owned: frozenset[GroupPartition]


@final
class _UnderWay(NamedTuple):
    """Heartbeat that is not answered yet."""

    number: int
    sent_at: float
    reported: _Reported
    subscription_version: int
    is_leaving: bool


@final
class MembershipProtocol:
    """One member, under one member id after another.

    Invariant: `owned` is all that this member reads or has not finished with; `releasing` is part
    of it. The group assigns no partition in `owned` to another member, unless it has fenced this
    member.
    """

    def __init__(
        self, settings: MemberSettings, subscription: Subscription, entropy: random.Random
    ) -> None:
        """Start outside of the group; the first heartbeat joins."""
        self._settings = settings
        self._subscription = subscription
        self._subscription_version = 1
        self._entropy = entropy
        self._incarnation = settings.incarnation
        self._backoff = Backoff(_BACKOFF_S, _BACKOFF_MAX_S, entropy)
        self._under_way: _UnderWay | None = None
        self._sent_count = 0
        self._failure_count = 0
        self._next_at = 0.0
        self._busy_until = 0.0
        self._leave_epoch: int | None = None
        self._is_over = False
        self.owned: set[GroupPartition] = set()
        self.releasing: set[GroupPartition] = set()
        self.fenced_count = 0
        """Number of times that the group fenced this member."""
        self._reset()

    def _reset(self) -> None:
        self.member_id = f"{self._entropy.getrandbits(128):032x}"
        self.member_epoch = JOIN_EPOCH
        self._revision = 0
        self._assigned: frozenset[GroupPartition] = frozenset()
        self._acknowledged: _Reported | None = None
        self._acknowledged_version = 0
        self._lease_end = 0.0
        self._commit_sequence = 0

    @property
    def is_over(self) -> bool:
        """Whether the membership has ended: left, or stopped by an error."""
        return self._is_over

    @property
    def lease_end(self) -> float:
        """Monotonic time until which records of `owned` may be handed out, in seconds."""
        return self._lease_end

    def may_process(self, now: float) -> bool:
        """Return whether records of `owned` may be handed out.

        It is false after so long without a reply that the group may have fenced this member, and
        true again after the next reply.
        """
        return self.member_epoch > JOIN_EPOCH and now < self._lease_end

    def next_commit_sequence(self) -> int:
        """Return the sequence for a new commit; commits of one member follow each other."""
        self._commit_sequence += 1
        return self._commit_sequence

    def next_heartbeat_at(self) -> float:
        """Return when to call `next_heartbeat`, in seconds; inf while one is in flight."""
        return float("inf") if self._under_way is not None or self._is_over else self._next_at

    def next_heartbeat(self, now: float) -> HeartbeatDue | None:
        """Return a heartbeat to be sent, if one is due and none is in flight."""
        if now < self.next_heartbeat_at():
            return None
        is_leaving = self._leave_epoch is not None and not self.owned
        reported = _Reported(self._revision, frozenset(self.owned))
        is_subscription_new = self._acknowledged_version != self._subscription_version
        settings = self._settings
        self._sent_count += 1
        self._under_way = _UnderWay(
            self._sent_count, now, reported, self._subscription_version, is_leaving
        )
        epoch = self.member_epoch
        if is_leaving:
            assert self._leave_epoch is not None
            epoch = self._leave_epoch
        request = GroupHeartbeatRequest(
            settings.group_id,
            self.member_id,
            epoch,
            self._revision,
            _pack(self.owned) if reported != self._acknowledged else None,
            self._subscription if is_subscription_new else None,
            self._subscription_version,
            settings.assignor,
            int(settings.rebalance_timeout * 1000),
            max(0, int((self._busy_until - now) * 1000)),
            settings.instance_id,
            self._incarnation,
            settings.client_id,
        )
        return HeartbeatDue(self._sent_count, request)

    def answered(
        self, number: int, reply: GroupHeartbeatReply, now: float
    ) -> list[MembershipEvent]:
        """Handle a reply; a reply that comes too late changes nothing."""
        under_way = self._under_way
        if under_way is None or under_way.number != number:
            return []
        self._under_way = None
        self._failure_count = 0
        if under_way.is_leaving:
            return self._stop(None)
        self._acknowledged = under_way.reported
        self._acknowledged_version = under_way.subscription_version
        self.member_epoch = reply.member_epoch
        self._lease_end = under_way.sent_at + reply.lease_ms / 1000
        interval = max(reply.heartbeat_interval_ms / 1000, _INTERVAL_MIN_S)
        self._next_at = now + interval * (1.0 - _EARLINESS * self._entropy.random())
        if (
            (self._leave_epoch is not None and not self.owned)
            or frozenset(self.owned) != under_way.reported.owned
            or self._subscription_version != under_way.subscription_version
        ):
            # Report at once what happened while the heartbeat was in flight.
            self._next_at = now
        if reply.assignment is None or reply.assignment_revision <= self._revision:
            return []
        self._revision = reply.assignment_revision
        self._assigned = frozenset(_unpack(reply.assignment))
        if self._leave_epoch is not None:
            return []
        return self._reconcile()

    def failed(self, number: int, error: TidelogError, now: float) -> list[MembershipEvent]:
        """Handle a heartbeat that was refused, or whose outcome is unknown."""
        under_way = self._under_way
        if under_way is None or under_way.number != number:
            return []
        self._under_way = None
        self._failure_count += 1
        self._next_at = now + self._backoff.delay(self._failure_count)
        # Send everything again: the coordinator may be another one.
        self._acknowledged = None
        if under_way.is_leaving:
            # Its session will expire; a leaving member does not wait for that.
            return self._stop(None)
        if isinstance(error, UnknownMemberError):
            events: list[MembershipEvent] = [*self._lose_all()]
            self.fenced_count += 1
            # Newer than a ghost of itself, which a delayed copy of a heartbeat may have let in.
            self._incarnation += 1
            self._reset()
            return [*events, *self._stop(None)] if self._leave_epoch is not None else events
        if isinstance(error, (RetriableError, ConnectionLostError, WireFormatError)):
            return []
        return [*self._lose_all(), *self._stop(error)]

    def released(self, partitions: Iterable[GroupPartition], now: float) -> list[MembershipEvent]:
        """Release revoked partitions that are finished with; report that at once."""
        done = self.releasing.intersection(partitions)
        self.releasing -= done
        self.owned -= done
        if done:
            self._next_at = min(self._next_at, now)
        if self.releasing or self._leave_epoch is not None:
            return []
        return self._reconcile()

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Replace the subscription; the group decides when partitions change."""
        self._subscription = subscription
        self._subscription_version += 1
        self._next_at = min(self._next_at, now)

    def busy(self, until: float) -> None:
        """Set the time until which the application is at work at most.

        To be called before the application blocks its process; 0 when it is done.
        """
        self._busy_until = until

    def hurry(self, now: float) -> None:
        """Send the next heartbeat now, as there is something to report."""
        self._next_at = min(self._next_at, now)

    def abandon(self) -> GroupHeartbeatRequest | None:
        """End at once; return a request to leave that needs no reply, if there is one to send.

        Records that were not committed will be processed again.
        """
        was_over = self._is_over
        self._stop(None)
        if was_over or (self._sent_count == 0):
            return None
        is_static = self._settings.instance_id is not None
        return GroupHeartbeatRequest(
            self._settings.group_id,
            self.member_id,
            STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH,
            self._revision,
            [],
            instance_id=self._settings.instance_id,
            incarnation=self._incarnation,
        )

    def leave(self, now: float, *, is_restart: bool = False) -> list[MembershipEvent]:
        """Leave for good, or to return as the next process of a static member.

        All partitions are revoked first; `MembershipEnded` follows when the group knows, or cannot
        be reached.
        """
        assert not is_restart or self._settings.instance_id is not None, "only static members"
        self._leave_epoch = STATIC_LEAVE_EPOCH if is_restart else LEAVE_EPOCH
        self._next_at = min(self._next_at, now)
        if self.member_epoch == JOIN_EPOCH and self._under_way is None and self._sent_count == 0:
            return self._stop(None)
        return self._revoke(self.owned - self.releasing)

    def _reconcile(self) -> list[MembershipEvent]:
        """Revoke partitions that are no longer assigned; after their release, assign new ones."""
        events = self._revoke(self.owned - self._assigned - self.releasing)
        if self.releasing:
            return events
        new = sorted(self._assigned - self.owned)
        if not new:
            return events
        self.owned.update(new)
        return [*events, PartitionsAssigned(tuple(new))]

    def _revoke(self, partitions: set[GroupPartition]) -> list[MembershipEvent]:
        if not partitions:
            return []
        self.releasing |= partitions
        return [PartitionsRevoked(tuple(sorted(partitions)))]

    def _lose_all(self) -> Sequence[PartitionsLost]:
        lost = tuple(sorted(self.owned))
        self.owned.clear()
        self.releasing.clear()
        return [PartitionsLost(lost)] if lost else []

    def _stop(self, error: TidelogError | None) -> list[MembershipEvent]:
        self._is_over = True
        self._lease_end = 0.0
        return [MembershipEnded(error)]


def _pack(partitions: Iterable[GroupPartition]) -> list[TopicPartitions]:
    by_topic: dict[bytes, list[int]] = {}
    for one in sorted(partitions, key=lambda one: (one.topic_id, one.partition)):
        by_topic.setdefault(one.topic_id, []).append(one.partition)
    return [TopicPartitions(topic_id, numbers) for topic_id, numbers in by_topic.items()]


def _unpack(assignment: Sequence[AssignedTopic]) -> list[GroupPartition]:
    return [
        GroupPartition(topic.topic, topic.topic_id, number)
        for topic in assignment
        for number in topic.partitions
    ]
