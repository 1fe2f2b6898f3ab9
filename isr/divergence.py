"""Where two replicas part: by leader epochs, never by high watermarks.

Pure: no clock, no I/O. KIP-101, KIP-279; in one exchange, as in KIP-595: a follower says where its
log ends and which epoch wrote its last record, and the leader has data, or an earlier place.
"""

from collections.abc import Sequence

import msgspec

from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.wire.errors import OffsetOutOfRangeError
from tidelog.wire.messages.replication import Diverging


class LogShape(msgspec.Struct, frozen=True):
    """What two replicas compare of their logs."""

    log_start_offset: int
    log_end_offset: int
    leader_epochs: LeaderEpochs


def find_divergence(
    leader: LogShape, *, fetch_offset: int, last_fetched_epoch: int | None
) -> Diverging | None:
    """Return where a follower's log is another one; `None` when it is a beginning of the leader's.

    `last_fetched_epoch` wrote the last record below `fetch_offset`; `None` for an empty log.

    Raises:
        OffsetOutOfRangeError: The leader has nothing to compare with, or to go on from, there.
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
        # All that the leader has is of later epochs.
        return Diverging(None, start) if fetch_offset > start else None
    epoch, epoch_end = found
    if epoch == last_fetched_epoch and fetch_offset <= epoch_end:
        return None
    if fetch_offset == start:
        return None  # Below there is nothing that could be compared.
    return Diverging(epoch, epoch_end)


def find_stale(
    leader: LogShape, epochs: Sequence[tuple[int, int]], *, fetch_offset: int
) -> Diverging | None:
    """Return where a follower has other records below a last one that is the leader's.

    That cannot come from replicating, but from a disk that has gone back to what it once had, in
    some places: what another leader wrote there and then was cut off, under valid checksums. Such
    records are of older epochs than those that belong there, so epochs begin elsewhere.

    Args:
        leader: The leader's log, of which nothing is damaged.
        epochs: Which epochs wrote the follower's log, and from where on.
        fetch_offset: Where that ends.
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
    """Return up to where a follower may keep its log; it then asks again.

    The end of its own epochs up to the leader's, or the leader's end of them, whichever comes
    first. An offset below the start of the follower's log means that nothing may be kept.
    """
    if diverging.epoch is None:
        return diverging.end_offset
    found = follower.leader_epochs.end_offset_for(
        diverging.epoch, log_end_offset=follower.log_end_offset
    )
    own_end = follower.log_start_offset if found is None else found.end_offset
    return min(own_end, diverging.end_offset)
