"""How far a group is behind: in records, and in time.

Pure functions: no clock, no I/O. Who calls knows the log of the partition.
"""

from collections.abc import Iterable

import msgspec


class LogBounds(msgspec.Struct, frozen=True):
    """What the leader of a partition says of its log."""

    log_start_offset: int
    high_watermark: int
    """Exclusive end of what can be read."""
    next_timestamp_ms: int | None = None
    """Unix milliseconds of the first record at or after the group's offset; `None` if there is
    none, or it is not known."""


class Lag(msgspec.Struct, frozen=True):
    """How far a group is behind."""

    records: int | None
    """To be read until the end; `None` without a committed offset."""
    time_ms: int | None
    """Age of the first of them; 0 when there is none, `None` when it is not known. It can be
    longer than it takes to catch up, and grows while the group stands still."""
    lost_records: int = 0
    """Records that retention deleted before the group has read them."""


def partition_lag(offset: int | None, log: LogBounds, now_ms: int) -> Lag:
    """Return the lag in one partition.

    Args:
        offset: Committed; `None` when nothing was.
        log: Of the partition.
        now_ms: Unix milliseconds. Timestamps from the future are no lag.
    """
    if offset is None:
        return Lag(None, None)
    lost_count = max(0, log.log_start_offset - offset)
    count = max(0, log.high_watermark - max(offset, log.log_start_offset))
    if count == 0:
        return Lag(0, 0, lost_count)
    if log.next_timestamp_ms is None:
        return Lag(count, None, lost_count)
    return Lag(count, max(0, now_ms - log.next_timestamp_ms), lost_count)


def group_lag(lags: Iterable[Lag]) -> Lag:
    """Return the lag of a group: records of all partitions together, and the longest time.

    What is not known in some partition is left out, unless it is known in none.
    """
    found = list(lags)
    counts = [lag.records for lag in found if lag.records is not None]
    times = [lag.time_ms for lag in found if lag.time_ms is not None]
    return Lag(
        sum(counts) if counts else None,
        max(times) if times else None,
        sum(lag.lost_records for lag in found),
    )
