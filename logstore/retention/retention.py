"""Retention: the oldest segments that one log, and all logs of one disk, may delete.

Pure: no clock, no I/O.
"""

import heapq
from collections.abc import Sequence
from itertools import takewhile

import msgspec

from tidelog.logstore.config import LogConfig
from tidelog.wire.errors import OffsetOutOfRangeError


class SegmentInfo(msgspec.Struct, frozen=True, gc=False):
    """Properties of a sealed segment that retention needs."""

    size_bytes: int
    end_offset: int
    """Offset after its last record."""
    newest_ms: int
    """Its largest timestamp, but at most the time of its seal: one record with a timestamp far in
    the future must not keep the segment for ever (in Kafka it does)."""
    sealed_at_ms: int = 0
    """Time of the seal by the broker's clock; Unix milliseconds."""


class ActiveSegmentInfo(msgspec.Struct, frozen=True, gc=False):
    """Properties of the active segment."""

    base_offset: int
    end_offset: int
    size_bytes: int
    first_append_ms: int | None
    """Time of its first append by the broker's clock; `None` if it is empty."""


class LogSummary(msgspec.Struct, frozen=True):
    """Summary of all segments of a log."""

    sealed: list[SegmentInfo]
    """Oldest first."""
    active: ActiveSegmentInfo

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self.active.size_bytes + sum(each.size_bytes for each in self.sealed)


def deletable_count(
    sealed: Sequence[SegmentInfo],
    *,
    config: LogConfig,
    active_bytes: int,
    high_watermark: int,
    log_start_offset: int,
    now_ms: int | None,
) -> int:
    """Return how many of the oldest sealed segments retention deletes.

    With `None` for the time, no segment is too old. It deletes whole segments, oldest first, but
    never a segment that reaches above the high watermark, and never the active segment.
    """
    surplus_bytes = 0
    if config.retention_bytes is not None:
        total = active_bytes + sum(segment.size_bytes for segment in sealed)
        surplus_bytes = total - config.retention_bytes
    count = 0
    for segment in sealed:
        if segment.end_offset > high_watermark:
            break
        is_expired = (
            config.retention_ms is not None
            and now_ms is not None
            and segment.newest_ms < now_ms - config.retention_ms
        )
        is_surplus = surplus_bytes >= segment.size_bytes
        is_deleted = segment.end_offset <= log_start_offset
        if not (is_expired or is_surplus or is_deleted):
            break
        surplus_bytes -= segment.size_bytes
        count += 1
    return count


def next_change_ms(summary: LogSummary, config: LogConfig) -> int | None:
    """Return a time before which a log without appends neither rolls nor deletes by time.

    It is in Unix milliseconds, and `None` if such a log never does.
    """
    times: list[int] = []
    first_append_ms = summary.active.first_append_ms
    if first_append_ms is not None:
        times.append(first_append_ms + config.roll_after_ms)
    if config.retention_ms is not None:
        times += [each.newest_ms + config.retention_ms for each in summary.sealed[:1]]
    return min(times, default=None)


def committed_count(sealed: Sequence[SegmentInfo], wanted: int, *, high_watermark: int) -> int:
    """Return how many of the oldest `wanted` sealed segments are committed."""
    committed = (segment.end_offset <= high_watermark for segment in sealed[:wanted])
    return sum(takewhile(bool, committed))


def require_committed(before_offset: int, *, log_start_offset: int, high_watermark: int) -> None:
    """Check that all records below `before_offset` are committed.

    Raises:
        OffsetOutOfRangeError: The offset is above the high watermark.
    """
    if before_offset > high_watermark:
        raise OffsetOutOfRangeError(
            f"cannot delete up to offset {before_offset}: only offsets below"
            f" {high_watermark} are committed",
            log_start_offset=log_start_offset,
            log_end_offset=high_watermark,
        )


def surplus_counts(logs: Sequence[LogSummary], *, max_bytes: int) -> list[int]:
    """Return how many of its oldest sealed segments each log deletes, in the order of `logs`.

    All logs together delete their oldest segments, by newest record, until at most `max_bytes` is
    left. Active segments stay, so more may be left.
    """
    surplus_bytes = sum(log.size_bytes for log in logs) - max_bytes
    counts = [0] * len(logs)
    oldest = [(log.sealed[0].newest_ms, place) for place, log in enumerate(logs) if log.sealed]
    heapq.heapify(oldest)
    while surplus_bytes > 0 and oldest:
        _, place = heapq.heappop(oldest)
        sealed = logs[place].sealed
        surplus_bytes -= sealed[counts[place]].size_bytes
        counts[place] += 1
        if counts[place] < len(sealed):
            heapq.heappush(oldest, (sealed[counts[place]].newest_ms, place))
    return counts
