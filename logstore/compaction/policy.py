"""Compaction policy: cleanable segments, the dirty ratio, and the merge of small segments.

Pure: no clock, no I/O.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

_RELATIVE_OFFSET_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """Compaction settings of one log."""

    min_compaction_lag_ms: int = 0
    """Minimum time between the seal of a segment and its cleaning."""

    max_compaction_lag_ms: int | None = None
    """Age since the seal at which a segment is cleaned at any ratio; `None` waits for the ratio."""

    min_cleanable_dirty_ratio: float = 0.5
    """Minimum ratio of never cleaned bytes to cleanable bytes."""

    delete_retention_ms: int = 24 * 3600 * 1000
    """Time that a tombstone stays after the cleaning that removed all earlier records of its key. A
    consumer that reads from the start within this time sees every deletion."""

    def __post_init__(self) -> None:
        """Check the relations between settings."""
        assert self.min_compaction_lag_ms >= 0
        assert self.max_compaction_lag_ms is None or (
            self.max_compaction_lag_ms >= self.min_compaction_lag_ms
        )
        assert 0 <= self.min_cleanable_dirty_ratio <= 1
        assert self.delete_retention_ms >= 0


class SealedSegment(msgspec.Struct, frozen=True):
    """Properties of a sealed segment that compaction needs."""

    base_offset: int
    end_offset: int
    """Exclusive."""
    size_bytes: int
    sealed_at_ms: int
    cleaned_at_ms: int | None = None
    """Time of the first cleaning that removed all records that its tombstones delete; `None` before
    that."""


class CleanableBounds(msgspec.Struct, frozen=True):
    """Bounds of the offsets that may be cleaned."""

    log_start_offset: int
    high_watermark: int
    damaged_from: int | None = None
    """Offset of the first known damage at or above the log start."""


def usable_clean_offset(clean_offset: int, bounds: CleanableBounds) -> int:
    """Return the clean offset of a log, or its start if the stored offset is invalid. (I34)."""
    start = bounds.log_start_offset
    return clean_offset if start <= clean_offset <= bounds.high_watermark else start


def cleanable_segments(
    segments: Sequence[SealedSegment],
    bounds: CleanableBounds,
    config: CompactionConfig,
    *,
    now_ms: int,
) -> Sequence[SealedSegment]:
    """Return the oldest segments that may be cleaned.

    They are consecutive, committed, and were sealed long enough ago. Segments at or after damage
    are excluded, because other replicas may repair it. (I28).
    """
    for count, segment in enumerate(segments):
        is_young = segment.sealed_at_ms > now_ms - config.min_compaction_lag_ms
        is_damaged = bounds.damaged_from is not None and bounds.damaged_from < segment.end_offset
        is_behind_gap = count > 0 and segments[count - 1].end_offset != segment.base_offset
        if is_young or is_damaged or is_behind_gap or segment.end_offset > bounds.high_watermark:
            return segments[:count]
    return segments


def dirty_bytes(segments: Sequence[SealedSegment], clean_offset: int) -> int:
    """Return the bytes of segments with records that were never cleaned."""
    return sum(each.size_bytes for each in segments if each.end_offset > clean_offset)


def dirty_ratio(segments: Sequence[SealedSegment], clean_offset: int) -> float:
    """Return the ratio of never cleaned bytes to all bytes of cleanable segments; 0 without any."""
    size_bytes = sum(each.size_bytes for each in segments)
    dirty = [each for each in segments if each.end_offset > clean_offset]
    return dirty_bytes(dirty, clean_offset) / size_bytes if dirty else 0.0


def urgency(
    segments: Sequence[SealedSegment], clean_offset: int, config: CompactionConfig, *, now_ms: int
) -> float:
    """Return the urgency of a cleaning: the dirty ratio, 0 below the threshold, above 1 if overdue.

    Args:
        segments: The cleanable segments.
        clean_offset: The clean offset of the log.
        config: The compaction settings of the log.
        now_ms: The time. A log that waited for too long comes before all others.
    """
    dirty = [each for each in segments if each.end_offset > clean_offset]
    if not dirty:
        return 0.0
    ratio = dirty_ratio(segments, clean_offset)
    lag_ms = config.max_compaction_lag_ms
    if lag_ms is not None and dirty[0].sealed_at_ms <= now_ms - lag_ms:
        return 1.0 + ratio
    return ratio if ratio >= config.min_cleanable_dirty_ratio else 0.0


def drops_tombstones(segment: SealedSegment, config: CompactionConfig, *, now_ms: int) -> bool:
    """Return whether the retention of a segment's tombstones has passed. (I29)."""
    cleaned_at_ms = segment.cleaned_at_ms
    return cleaned_at_ms is not None and now_ms - cleaned_at_ms >= config.delete_retention_ms


def cleaned_at_ms(
    group: Sequence[SealedSegment], *, range_end_offset: int, now_ms: int
) -> int | None:
    """Return the time from which the tombstones of merged segments are retained.

    It is the latest time of the segments. `None` if the cleaning does not reach to their end.
    """
    if group[-1].end_offset > range_end_offset:
        return None
    return max(now_ms if each.cleaned_at_ms is None else each.cleaned_at_ms for each in group)


def group_segments(
    segments: Sequence[SealedSegment], *, range_end_offset: int, segment_bytes: int
) -> Iterator[Sequence[SealedSegment]]:
    """Yield runs of segments to merge into one each, in order.

    Each run fits into `segment_bytes` before the cleaning, so also after it. A segment to whose end
    the cleaning does not reach stays alone, and the segments after it stay unchanged.
    """
    touched = [each for each in segments if each.base_offset < range_end_offset]
    cuts = [0]
    size_bytes = 0
    for number, segment in enumerate(touched):
        size_bytes += segment.size_bytes
        span = segment.end_offset - touched[cuts[-1]].base_offset
        is_partial = segment.end_offset > range_end_offset
        if number > cuts[-1] and (
            size_bytes > segment_bytes or span > _RELATIVE_OFFSET_MAX or is_partial
        ):
            cuts.append(number)
            size_bytes = segment.size_bytes
    for first, end in pairwise([*cuts, len(touched)]):
        if first < end:
            yield touched[first:end]
