"""The lag of a group: in records, and in time.

Pure functions: no clock, no I/O. The caller knows the log of the partition.
"""

from collections.abc import Iterable

import msgspec


class LogBounds(msgspec.Struct, frozen=True):
    """The bounds of a partition's log, from its leader."""

    log_start_offset: int
    high_watermark: int
    """Exclusive end of the readable records."""
    next_timestamp_ms: int | None = None
    """Unix milliseconds of the first record at or after the group's offset; `None` without one, or
    if it is not known."""


class Lag(msgspec.Struct, frozen=True):
    """The lag of a group."""

    records: int | None
    """Records until the end; `None` without a committed offset."""
    time_ms: int | None
    """Age of the first of them; 0 without one, `None` if it is not known. It can be longer than the
    time to catch up, and grows while the group is idle."""
    lost_records: int = 0
    """Records that retention deleted before the group has read them."""


def partition_lag(offset: int | None, log: LogBounds, now_ms: int) -> Lag:
    """Return the lag in one partition.

    Args:
        offset: The committed offset; `None` without one.
        log: Bounds of the partition's log.
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

    Partitions with unknown lag are left out, unless it is unknown in all of them.
    """
    found = list(lags)
    counts = [lag.records for lag in found if lag.records is not None]
    times = [lag.time_ms for lag in found if lag.time_ms is not None]
    return Lag(
        sum(counts) if counts else None,
        max(times) if times else None,
        sum(lag.lost_records for lag in found),
    )
