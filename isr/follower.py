"""A follower of one partition: its fetch position, and the steps after an answer.

Pure: no clock, no I/O. The order of steps keeps a follower from exposing uncommitted records: it
drops an answer to an old request, truncates a diverging log, appends batches, and only then applies
the leader's high watermark (KAFKA-14704).

A follower removes no records that it knows to be committed, unless the cluster has recorded a loss
since they were written. A leader without them has lost them: its disk is damaged.
"""

from typing import final

import msgspec

from tidelog.isr.divergence import LogShape, truncation_offset
from tidelog.wire.messages.replication import Diverging


class FetchPosition(msgspec.Struct, frozen=True):
    """Position of a follower's fetch."""

    fetch_offset: int
    """The follower's log end offset."""
    last_fetched_epoch: int | None
    """Epoch of the last record below, `None` for an empty log."""


class LeaderAnswer(msgspec.Struct, frozen=True):
    """A leader's answer to a fetch, without the batches."""

    leader_epoch: int
    """Leader epoch of the request."""
    asked_at: FetchPosition
    high_watermark: int
    log_start_offset: int
    diverging: Diverging | None = None


class Truncate(msgspec.Struct, frozen=True):
    """Remove all records from this offset on, durably, then fetch again."""

    offset: int


class Restart(msgspec.Struct, frozen=True):
    """Remove all records, restart the log at this offset, then fetch again."""

    offset: int


class Refuse(msgspec.Struct, frozen=True):
    """Keep the log: the leader lacks committed records from this offset on.

    It is the first offset that would be removed.
    """

    offset: int


class Append(msgspec.Struct, frozen=True):
    """Append the batches, if any, then call `appended`."""


class Drop(msgspec.Struct, frozen=True):
    """Ignore the answer: its request is outdated."""


Step = Truncate | Restart | Refuse | Append | Drop


@final
class PartitionFollower:
    """State of one follower of a partition in one leader epoch.

    Invariant: the high watermark never passes the end of the log, and falls only when the log is
    truncated below it, which only an unclean election makes necessary.
    """

    def __init__(
        self,
        *,
        leader_id: int | None,
        leader_epoch: int,
        high_watermark: int,
        data_loss_epoch: int | None = None,
    ) -> None:
        """Follow a leader, or none.

        Args:
            leader_id: The leader.
            leader_epoch: The leader epoch.
            high_watermark: The one known before.
            data_loss_epoch: Leader epoch of the last leader for which the cluster has recorded that
                committed records may be lost.
        """
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        """Exclusive end of the records known to be committed."""
        self.is_beginning = False
        """Whether the log was found to be a prefix of the leader's in this leader epoch."""
        self.data_loss_epoch = data_loss_epoch
        """May rise at any time: an administrator accepts the loss of records."""

    def position(self, log: LogShape) -> FetchPosition:
        """Return the position of the next fetch."""
        return FetchPosition(log.log_end_offset, log.last_epoch)

    def answered(self, log: LogShape, answer: LeaderAnswer) -> Step:
        """Return the step after an answer, for the present log."""
        if answer.leader_epoch != self.leader_epoch or answer.asked_at != self.position(log):
            return Drop()
        if answer.diverging is None:
            return Append()
        offset = truncation_offset(log, answer.diverging)
        if _is_stale(answer):
            return _cut(log, offset)
        return self._cut_unless_committed(log, offset)

    def out_of_range(
        self, log: LogShape, asked_at: FetchPosition, *, leader_start: int, leader_end: int
    ) -> Step:
        """Return the step after `OFFSET_OUT_OF_RANGE`.

        The leader has deleted the next records (KAFKA-9491), or the log is empty and begins after
        the leader's end.
        """
        if asked_at != self.position(log):
            return Drop()
        if log.log_end_offset < leader_start:
            return Restart(leader_start)
        if log.log_end_offset > leader_end:
            return self._cut_unless_committed(log, leader_end)
        return Drop()

    def committed_count(self, log: LogShape, offset: int) -> int:
        """Return the number of intact records from an offset on that are known to be committed."""
        return log.intact_count(offset, self.high_watermark)

    def appended(self, answer: LeaderAnswer, *, log_end_offset: int) -> None:
        """Apply the leader's high watermark after the append of its batches."""
        self.is_beginning = True
        self.high_watermark = max(self.high_watermark, min(answer.high_watermark, log_end_offset))

    def truncated(self, log_end_offset: int) -> None:
        """Lower the high watermark to the new end of the log."""
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def restarted(self, log_end_offset: int) -> None:
        """Set the high watermark to the offset of a restarted log: records below are committed."""
        self.high_watermark = log_end_offset

    def _cut_unless_committed(self, log: LogShape, offset: int) -> Truncate | Restart | Refuse:
        latest = log.leader_epochs.latest
        is_accepted = (
            self.data_loss_epoch is not None
            and latest is not None
            and latest < self.data_loss_epoch
        )
        if is_accepted or not self.committed_count(log, offset):
            return _cut(log, offset)
        return Refuse(max(offset, log.log_start_offset))


def _cut(log: LogShape, offset: int) -> Truncate | Restart:
    return Truncate(offset) if offset >= log.log_start_offset else Restart(offset)


def _is_stale(answer: LeaderAnswer) -> bool:
    """Return whether the follower's records differ below a last record that is the leader's.

    The leader does not lack records then: the follower's disk went back. See `find_stale`.
    """
    diverging = answer.diverging
    return (
        diverging is not None
        and diverging.epoch is None
        and diverging.end_offset > answer.log_start_offset
    )
