"""Incremental fetch session of a follower and its leader on one connection (KIP-227).

Pure: no clock, no I/O. Partitions have numbers in the session. A follower sends its log end only
after a change, or after an answer of the leader for the partition. A leader checks only partitions
with a new position or an event. So the cost of a fetch depends on the changes, and not on the
number of partitions.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, final

from tidelog.isr.follower import FetchPosition
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.replication import (
    FollowedPartition,
    ReplicaFetchRequest,
    ReplicaPosition,
)

Key = tuple[bytes, int]
"""Topic id and number of a partition."""


class SessionDelta(NamedTuple):
    """Changes since the last request of a follower."""

    followed: list[FollowedPartition]
    positions: list[ReplicaPosition]
    unfollowed: list[int]


class FollowerPosition(NamedTuple):
    """End of a follower's log."""

    position: FetchPosition
    durable_end_offset: int
    is_whole: bool = True
    is_suspect: bool = False
    """Whether the last batch from there arrived damaged, in transit or from the leader."""


@final
class _Followed:
    """State of one partition at the follower."""

    __slots__ = ("asked_at", "key", "leader_epoch", "number")

    def __init__(self, key: Key, number: int, leader_epoch: int) -> None:
        self.key = key
        self.number = number
        self.leader_epoch = leader_epoch
        self.asked_at: FetchPosition | None = None


@final
class FollowerSession:
    """The follower's side. One fetch is in flight at a time.

    Invariant: the leader knows the log end of every partition that is not due.
    """

    def __init__(self) -> None:
        """Start without partitions."""
        self._by_key: dict[Key, _Followed] = {}
        self._by_number: dict[int, _Followed] = {}
        self._next_number = 0
        self._new: dict[Key, None] = {}
        self._due: dict[Key, None] = {}
        self._unfollowed: list[int] = []

    def __len__(self) -> int:
        """Return the number of followed partitions."""
        return len(self._by_key)

    @property
    def keys(self) -> Iterable[Key]:
        """The followed partitions."""
        return self._by_key.keys()

    def begin(self) -> None:
        """Restart the session on another connection with the same partitions."""
        followed = list(self._by_key.values())
        self._by_number.clear()
        self._new.clear()
        self._due.clear()
        self._unfollowed.clear()
        self._next_number = 0
        for each in followed:
            self._add(each.key, each.leader_epoch)

    def follow(self, key: Key, leader_epoch: int) -> None:
        """Add a partition, or change its leader epoch."""
        self.unfollow(key)
        self._add(key, leader_epoch)

    def unfollow(self, key: Key) -> None:
        """Remove a partition."""
        known = self._by_key.pop(key, None)
        if known is None:
            return
        del self._by_number[known.number]
        self._due.pop(key, None)
        if key in self._new:
            del self._new[key]
        else:
            self._unfollowed.append(known.number)

    def is_due(self, key: Key) -> None:
        """Send the log end of a partition with the next request."""
        if key in self._by_key:
            self._due[key] = None

    def next_delta(
        self,
        position_of: Callable[[Key], FollowerPosition],
        epochs_of: Callable[[Key], list[tuple[int, int]]],
    ) -> SessionDelta:
        """Return the changes for the next request; `epochs_of` is called for new partitions."""
        new = [self._by_key[key] for key in self._new]
        followed = [
            FollowedPartition(each.number, *each.key, each.leader_epoch, epochs_of(each.key))
            for each in new
        ]
        positions: list[ReplicaPosition] = []
        for key in self._due:
            each = self._by_key[key]
            end = position_of(key)
            each.asked_at = end.position
            positions.append(
                ReplicaPosition(
                    each.number,
                    end.position.fetch_offset,
                    end.position.last_fetched_epoch,
                    end.durable_end_offset,
                    end.is_whole,
                    end.is_suspect,
                )
            )
        delta = SessionDelta(followed, positions, self._unfollowed)
        self._new, self._due, self._unfollowed = {}, {}, []
        return delta

    def number_of(self, key: Key) -> int | None:
        """Return the number of a partition at the leader; `None` if the leader lacks it."""
        known = self._by_key.get(key)
        return None if known is None or key in self._new else known.number

    def asked(self, number: int) -> tuple[Key, int, FetchPosition] | None:
        """Return partition, leader epoch and position of the last request for a number.

        `None` if the partition is not followed any more.
        """
        known = self._by_number.get(number)
        if known is None or known.asked_at is None:
            return None
        return known.key, known.leader_epoch, known.asked_at

    def _add(self, key: Key, leader_epoch: int) -> None:
        followed = _Followed(key, self._next_number, leader_epoch)
        self._next_number += 1
        self._by_key[key] = self._by_number[followed.number] = followed
        self._new[key] = self._due[key] = None


@final
class SessionPartition:
    """State of one partition at the leader."""

    __slots__ = (
        "awaits_report",
        "followed",
        "is_compared",
        "is_reported",
        "position",
        "told_high_watermark",
        "told_log_start_offset",
    )

    def __init__(self, followed: FollowedPartition) -> None:
        """Start without a position."""
        self.followed = followed
        self.position: ReplicaPosition | None = None
        self.is_compared = False
        """Whether the epochs of the follower's log were found to match the leader's."""
        self.is_reported = False
        """Whether the position was compared with the leader's log and recorded."""
        self.awaits_report = False
        """Whether the follower got an answer after which it must report its log end. Until then the
        leader sends nothing more for the partition; a slow follower cannot use the answer."""
        self.told_high_watermark = -1
        self.told_log_start_offset = -1


@final
class LeaderSession:
    """The leader's side.

    Invariant: the follower has all news of every partition that is not in `due`.
    """

    def __init__(self) -> None:
        """Start without partitions."""
        self.partitions: dict[int, SessionPartition] = {}
        """Partitions by their numbers in the session."""
        self.due: dict[int, None] = {}
        """Numbers of the partitions to check, in this order."""

    def take(self, request: ReplicaFetchRequest) -> list[int]:
        """Apply a follower's request; return the numbers that it does not follow any more.

        Raises:
            InvalidRequestError: It names partitions that it does not follow.
        """
        gone = list(request.unfollowed)
        if request.begins_session:
            gone = list(self.partitions)
            self.partitions.clear()
            self.due.clear()
        for number in request.unfollowed:
            self.partitions.pop(number, None)
            self.due.pop(number, None)
        for followed in request.followed:
            self.partitions[followed.number_in_session] = SessionPartition(followed)
        for position in request.positions:
            number = position.number_in_session
            known = self.partitions.get(number)
            if known is None:
                raise InvalidRequestError(
                    f"the session does not know a partition {number}; follow it first"
                )
            known.position = position
            known.is_reported = known.awaits_report = False
            self.due.pop(number, None)  # A new position moves the partition to the end.
            self.due[number] = None
        return gone

    def touch(self, number: int) -> None:
        """Check a partition after an event."""
        known = self.partitions.get(number)
        if known is not None and not known.awaits_report:
            self.due[number] = None

    def told(
        self,
        number: int,
        *,
        high_watermark: int,
        log_start_offset: int,
        awaits_report: bool = False,
    ) -> None:
        """Record that the follower has the present state of a partition."""
        known = self.partitions[number]
        known.awaits_report = awaits_report
        known.told_high_watermark = high_watermark
        known.told_log_start_offset = log_start_offset
        self.due.pop(number, None)

    def is_told(self, number: int, *, high_watermark: int, log_start_offset: int) -> bool:
        """Return whether the follower knows these already."""
        known = self.partitions[number]
        return (
            known.told_high_watermark == high_watermark
            and known.told_log_start_offset == log_start_offset
        )
