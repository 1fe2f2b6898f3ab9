"""Divergence of two replicas, by leader epochs and never by high watermarks.

Pure: no clock, no I/O. KIP-101, KIP-279; in one exchange, as in KIP-595: a follower sends the end
of its log and the epoch of its last record, and the leader answers with data or an earlier offset.
"""

from collections.abc import Sequence

import msgspec

from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.wire.errors import OffsetOutOfRangeError
from tidelog.wire.messages.replication import Diverging


class LogShape(msgspec.Struct, frozen=True):
    """The part of a log that two replicas compare."""

    log_start_offset: int
    log_end_offset: int
    leader_epochs: LeaderEpochs
    damage: tuple[DamagedRange, ...] = ()
    """Records that the log does not have any more, lowest first."""

    @property
    def last_epoch(self) -> int | None:
        """Leader epoch of the last record; `None` for an empty log."""
        is_empty = self.log_end_offset == self.log_start_offset
        return None if is_empty else self.leader_epochs.latest

    def intact_count(self, offset: int, end_offset: int) -> int:
        """Return the number of offsets of a range that the log holds without damage."""
        first, end = max(offset, self.log_start_offset), min(end_offset, self.log_end_offset)
        damaged = sum(
            max(0, min(each.end_offset, end) - max(each.offset, first)) for each in self.damage
        )
        return max(0, end - first - damaged)


def find_divergence(
    leader: LogShape, *, fetch_offset: int, last_fetched_epoch: int | None
) -> Diverging | None:
    """Return where a follower's log diverges; `None` when it is a prefix of the leader's.

    `last_fetched_epoch` wrote the last record below `fetch_offset`; `None` for an empty log.

    Raises:
        OffsetOutOfRangeError: The leader has no records there to compare with, or to send.
    """
    start, end = leader.log_start_offset, leader.log_end_offset
    if fetch_offset < start or (last_fetched_epoch is None and fetch_offset > end):
        raise OffsetOutOfRangeError(
            f"the leader has offsets {start} to {end} (exclusive), not {fetch_offset}",
            log_start_offset=start,
            log_end_offset=end,
        )
    if last_fetched_epoch is None:
        return None
    found = leader.leader_epochs.end_offset_for(last_fetched_epoch, log_end_offset=end)
    if found is None:
        # All records of the leader are of later epochs.
        return Diverging(None, start) if fetch_offset > start else None
    epoch, epoch_end = found
    if epoch == last_fetched_epoch and fetch_offset <= epoch_end:
        return None
    if fetch_offset == start:
        return None  # The leader has no records below to compare with.
    return Diverging(epoch, epoch_end)


def find_truncation(
    leader: LogShape, *, fetch_offset: int, last_fetched_epoch: int
) -> Diverging | None:
    """Return where a consumer's records differ from the log; `None` when it has read this log.

    KIP-320. Unlike a follower, a consumer may have read records that the log has deleted since, and
    says so only by its fetch offset. So an epoch that is older than the log is no divergence.
    Damage may hide all records of an epoch. Then only a later epoch below the fetch offset, or the
    log's end, proves a truncation.

    Args:
        leader: The log from which the consumer reads.
        fetch_offset: Offset that the consumer reads next; one below the log start is no divergence.
        last_fetched_epoch: Leader epoch of the last record that it has read below.
    """
    start, end, epochs = leader.log_start_offset, leader.log_end_offset, leader.leader_epochs
    found = epochs.end_offset_for(last_fetched_epoch, log_end_offset=end)
    if found is not None:
        epoch, epoch_end = found
    else:
        epoch, epoch_end = None, epochs.entries[0][1] if epochs.latest is not None else end
    if fetch_offset > max(epoch_end, start):
        return Diverging(epoch, max(epoch_end, start))
    if (
        epoch == last_fetched_epoch
        or leader.damage
        or fetch_offset <= start
        or epochs.latest is None
    ):
        return None
    # Another epoch wrote the record below, so at least that one differs.
    return Diverging(epoch, fetch_offset - 1)


def find_stale(
    leader: LogShape, epochs: Sequence[tuple[int, int]], *, fetch_offset: int
) -> Diverging | None:
    """Return where a follower's records differ although its last record is the leader's.

    Replication cannot cause this, but a disk that reverted some blocks to an earlier state: records
    of another leader that were truncated since, under valid checksums. Such records have older
    epochs than the right ones, so epochs begin at other offsets.

    Args:
        leader: The leader's log, without damage.
        epochs: Epochs of the follower's log with their start offsets.
        fetch_offset: The follower's log end offset.
    """
    own = leader.leader_epochs.entries
    if not own or not epochs:
        return None
    known_from = max(own[0][1], epochs[0][1])  # Where a log begins, no epoch needs to begin.
    known_to = min(fetch_offset, leader.log_end_offset)
    theirs = LeaderEpochs(epochs)
    found = [
        {(each.epoch_before(known_from + 1), known_from)}
        | {entry for entry in each.entries if entry[1] > known_from}
        for each in (leader.leader_epochs, theirs)
    ]
    offset = min((start for _, start in found[0] ^ found[1]), default=known_to)
    return Diverging(None, offset) if offset < known_to else None


def truncation_offset(follower: LogShape, diverging: Diverging) -> int:
    """Return the offset to which a follower truncates its log before it fetches again.

    It is the end of its own epochs up to the leader's epoch, or the leader's end of that epoch,
    whichever comes first. An offset below the follower's log start offset means a full truncation.
    """
    if diverging.epoch is None:
        return diverging.end_offset
    found = follower.leader_epochs.end_offset_for(
        diverging.epoch, log_end_offset=follower.log_end_offset
    )
    own_end = follower.log_start_offset if found is None else found.end_offset
    return min(own_end, diverging.end_offset)
