"""A follower of one partition: from where it fetches, and what an answer means for its log.

Pure: no clock, no I/O. The order is what keeps a follower from showing what was never committed: an
answer to an old question is dropped, a log that parts from the leader's is truncated, batches are
appended, and only then the leader's high watermark counts (KAFKA-14704).
"""

from typing import final

import msgspec

from tidelog.isr.divergence import LogShape, truncation_offset
from tidelog.wire.messages.replication import Diverging


class FetchPosition(msgspec.Struct, frozen=True):
    """From where a follower fetches, and what it has."""

    fetch_offset: int
    """Its log end."""
    last_fetched_epoch: int | None
    """The epoch of the last record below, `None` for an empty log."""


class LeaderAnswer(msgspec.Struct, frozen=True):
    """What a leader said to a fetch, without the batches."""

    leader_epoch: int
    """In which the question was asked."""
    asked_at: FetchPosition
    high_watermark: int
    log_start_offset: int
    diverging: Diverging | None = None


class Truncate(msgspec.Struct, frozen=True):
    """Remove all records from this offset on, durably, then fetch again."""

    offset: int


class Restart(msgspec.Struct, frozen=True):
    """Nothing in the log is of use: begin it anew at this offset, then fetch again."""

    offset: int


class Append(msgspec.Struct, frozen=True):
    """Append what came, if anything, then say `appended`."""


class Drop(msgspec.Struct, frozen=True):
    """The answer is to a question that was overtaken."""


Step = Truncate | Restart | Append | Drop


@final
class PartitionFollower:
    """What one follower knows of a partition in one leader epoch.

    Invariant: the high watermark never passes the end of the log, and falls only when the log is
    truncated below it, which a clean election never makes necessary.
    """

    def __init__(self, *, leader_id: int | None, leader_epoch: int, high_watermark: int) -> None:
        """Follow a leader, or nobody; `high_watermark` is what was known before."""
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        """First offset not known to be committed (exclusive end)."""
        self.is_beginning = False
        """Whether the log was found to be a beginning of the leader's in this leader epoch."""

    def position(self, log: LogShape) -> FetchPosition:
        """Return from where to fetch."""
        return FetchPosition(log.log_end_offset, _last_epoch(log))

    def answered(self, log: LogShape, answer: LeaderAnswer) -> Step:
        """Return what to do, in the log as it is now."""
        if answer.leader_epoch != self.leader_epoch or answer.asked_at != self.position(log):
            return Drop()
        if answer.diverging is None:
            return Append()
        offset = truncation_offset(log, answer.diverging)
        return Truncate(offset) if offset >= log.log_start_offset else Restart(offset)

    def out_of_range(
        self, log: LogShape, asked_at: FetchPosition, *, leader_start: int, leader_end: int
    ) -> Step:
        """Return what to do when the leader has no offset like that.

        The leader has deleted what would come next (KAFKA-9491), or the log is empty and begins
        behind the leader's end.
        """
        if asked_at != self.position(log):
            return Drop()
        if log.log_end_offset < leader_start:
            return Restart(leader_start)
        if log.log_end_offset > leader_end:
            return (
                Truncate(leader_end) if leader_end >= log.log_start_offset else Restart(leader_end)
            )
        return Drop()

    def appended(self, answer: LeaderAnswer, *, log_end_offset: int) -> None:
        """Take over what the leader knows, now that its batches are in the log."""
        self.is_beginning = True
        self.high_watermark = max(self.high_watermark, min(answer.high_watermark, log_end_offset))

    def truncated(self, log_end_offset: int) -> None:
        """Take note that the log ends here now."""
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def restarted(self, log_end_offset: int) -> None:
        """Take note that the log begins and ends here now: what is not there was committed."""
        self.high_watermark = log_end_offset


def _last_epoch(log: LogShape) -> int | None:
    return None if log.log_end_offset == log.log_start_offset else log.leader_epochs.latest
