"""What compaction may clean of a log, when it is worth it, and which segments become one.

Pure: no clock, no I/O.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

_RELATIVE_OFFSET_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """How one log is compacted."""

    min_compaction_lag_ms: int = 0
    """Records stay as they are for so long after their segment was sealed."""

    max_compaction_lag_ms: int | None = None
    """Clean what was sealed so long ago, however little it is; `None` waits for the ratio."""

    min_cleanable_dirty_ratio: float = 0.5
    """Clean when so much of what may be cleaned never was, by bytes."""

    delete_retention_ms: int = 24 * 3600 * 1000
    """A tombstone stays for so long after the cleaning that left nothing before it: whoever reads
    from the start and needs no longer than that sees every deletion."""

    def __post_init__(self) -> None:
        """Check the relations between settings."""
        assert self.min_compaction_lag_ms >= 0
        assert self.max_compaction_lag_ms is None or (
            self.max_compaction_lag_ms >= self.min_compaction_lag_ms
        )
        assert 0 <= self.min_cleanable_dirty_ratio <= 1
        assert self.delete_retention_ms >= 0


class SealedSegment(msgspec.Struct, frozen=True):
    """What compaction needs to know of a sealed segment."""

    base_offset: int
    end_offset: int
    """Exclusive."""
    size_bytes: int
    sealed_at_ms: int
    cleaned_at_ms: int | None = None
    """When nothing was left any more that its tombstones delete; `None` when it never was."""


class CleanableBounds(msgspec.Struct, frozen=True):
    """The offsets between which a log may be cleaned."""

    log_start_offset: int
    high_watermark: int
    damaged_from: int | None = None
    """Where the first damage is that is known, at or above the log start."""


def usable_clean_offset(clean_offset: int, bounds: CleanableBounds) -> int:
    """Return how far a log is clean; from its start on if what was kept makes no sense. (I34)."""
    start = bounds.log_start_offset
    return clean_offset if start <= clean_offset <= bounds.high_watermark else start


def cleanable_segments(
    segments: Sequence[SealedSegment],
    bounds: CleanableBounds,
    config: CompactionConfig,
    *,
    now_ms: int,
) -> Sequence[SealedSegment]:
    """Return the oldest segments, as far as they may be cleaned.

    They follow each other without a gap, are committed, and were sealed long enough ago. Nothing at
    or behind damage: what is missing there may be mended with what others have. (I28).
    """
    for count, segment in enumerate(segments):
        is_young = segment.sealed_at_ms > now_ms - config.min_compaction_lag_ms
        is_damaged = bounds.damaged_from is not None and bounds.damaged_from < segment.end_offset
        is_behind_gap = count > 0 and segments[count - 1].end_offset != segment.base_offset
        if is_young or is_damaged or is_behind_gap or segment.end_offset > bounds.high_watermark:
            return segments[:count]
    return segments


def dirty_bytes(segments: Sequence[SealedSegment], clean_offset: int) -> int:
    """Return the bytes of those of which something was never cleaned."""
    return sum(each.size_bytes for each in segments if each.end_offset > clean_offset)


def dirty_ratio(segments: Sequence[SealedSegment], clean_offset: int) -> float:
    """Return how much of segments that may be cleaned never was, by bytes; 0 if there are none."""
    size_bytes = sum(each.size_bytes for each in segments)
    dirty = [each for each in segments if each.end_offset > clean_offset]
    return dirty_bytes(dirty, clean_offset) / size_bytes if dirty else 0.0


def urgency(
    segments: Sequence[SealedSegment], clean_offset: int, config: CompactionConfig, *, now_ms: int
) -> float:
    """Return how much a cleaning is worth, 0 if it is not: the part that is dirty, or more.

    Args:
        segments: Those that may be cleaned.
        clean_offset: How far the log is clean.
        config: How it is compacted.
        now_ms: The time. What has waited too long comes before all that has not.
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
    """Return whether tombstones of a segment have been there for long enough. (I29)."""
    cleaned_at_ms = segment.cleaned_at_ms
    return cleaned_at_ms is not None and now_ms - cleaned_at_ms >= config.delete_retention_ms


def cleaned_at_ms(
    group: Sequence[SealedSegment], *, range_end_offset: int, now_ms: int
) -> int | None:
    """Return the time from which tombstones of segments that become one are kept on.

    The latest one of them. `None` if the cleaning does not reach to their end.
    """
    if group[-1].end_offset > range_end_offset:
        return None
    return max(now_ms if each.cleaned_at_ms is None else each.cleaned_at_ms for each in group)


def group_segments(
    segments: Sequence[SealedSegment], *, range_end_offset: int, segment_bytes: int
) -> Iterator[Sequence[SealedSegment]]:
    """Yield runs of segments each of which becomes one, in their order.

    Each run fits into `segment_bytes` as it is now, so also when it is cleaned. A segment to whose
    end the cleaning does not reach stays alone, and those behind it as they are.
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
