"""Tests of the compaction policy: cleanable segments, urgency, merges. I28, I29 and I34."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.logstore.compaction.policy import (
    CleanableBounds,
    CompactionConfig,
    SealedSegment,
    cleanable_segments,
    cleaned_at_ms,
    dirty_bytes,
    drops_tombstones,
    group_segments,
    urgency,
    usable_clean_offset,
)

HOUR_MS = 3_600_000
CONFIG = CompactionConfig()
WHOLE = CleanableBounds(0, 1 << 30)


def segments_of(*ends: int, sizes: tuple[int, ...] = ()) -> list[SealedSegment]:
    """Return consecutive segments, sealed one hour after the other."""
    return [
        SealedSegment(base, end, size, number * HOUR_MS)
        for number, (base, end, size) in enumerate(
            zip([0, *ends], ends, sizes or [100] * len(ends), strict=False), 1
        )
    ]


def count_cleanable(segments: list[SealedSegment], bounds: CleanableBounds, lag_ms: int = 0) -> int:
    config = CompactionConfig(min_compaction_lag_ms=lag_ms)
    return len(cleanable_segments(segments, bounds, config, now_ms=10 * HOUR_MS))


@pytest.mark.invariant("I28")
def test_uncommitted_segments_are_not_cleanable() -> None:
    found = [
        count_cleanable(segments_of(10, 20, 30), CleanableBounds(0, end)) for end in (9, 10, 29, 30)
    ]

    assert found == [0, 1, 2, 3]


@pytest.mark.invariant("I28")
def test_segments_within_min_compaction_lag_are_not_cleanable() -> None:
    segments = segments_of(10, 20, 30)

    found = [count_cleanable(segments, WHOLE, lag * HOUR_MS) for lag in (7, 8, 9, 10)]

    assert found == [3, 2, 1, 0]


@pytest.mark.invariant("I28")
def test_segments_at_or_after_damage_are_not_cleanable() -> None:
    segments = segments_of(10, 20, 30)

    found = [
        count_cleanable(segments, CleanableBounds(0, 30, damage)) for damage in (0, 9, 10, 29, 30)
    ]

    assert found == [0, 0, 1, 2, 3]


def test_segments_after_a_gap_are_not_cleanable() -> None:
    first, second, third = segments_of(10, 20, 30)

    assert count_cleanable([first, third], WHOLE) == 1
    assert count_cleanable([second, third], WHOLE) == 2


@pytest.mark.invariant("I34")
def test_an_invalid_clean_offset_is_reset_to_the_log_start() -> None:
    """I34: a clean offset outside of the log does not stop compaction."""
    bounds = CleanableBounds(10, 20)

    found = [usable_clean_offset(offset, bounds) for offset in (0, 9, 10, 15, 20, 21)]

    assert found == [10, 10, 10, 15, 20, 10]


def test_a_log_is_cleaned_from_min_cleanable_dirty_ratio_on() -> None:
    segments = segments_of(10, 20, 30, 40)

    assert urgency(segments, 0, CONFIG, now_ms=0) == 1
    assert urgency(segments, 15, CONFIG, now_ms=0) == 0.75
    assert urgency(segments, 20, CONFIG, now_ms=0) == 0.5
    assert urgency(segments, 30, CONFIG, now_ms=0) == 0
    assert urgency(segments, 40, CONFIG, now_ms=0) == 0
    assert urgency([], 0, CONFIG, now_ms=0) == 0
    assert dirty_bytes(segments, 15) == 300


def test_a_log_beyond_max_compaction_lag_comes_first() -> None:
    config = CompactionConfig(max_compaction_lag_ms=2 * HOUR_MS)
    segments = segments_of(10, 20, 30, 40)

    assert urgency(segments, 30, config, now_ms=6 * HOUR_MS - 1) == 0
    assert urgency(segments, 30, config, now_ms=6 * HOUR_MS) == 1.25
    assert urgency(segments, 40, config, now_ms=99 * HOUR_MS) == 0


@pytest.mark.invariant("I29")
def test_tombstones_stay_for_delete_retention_after_a_cleaning() -> None:
    (segment,) = segments_of(10)
    cleaned = msgspec.structs.replace(segment, cleaned_at_ms=HOUR_MS)

    assert not drops_tombstones(segment, CONFIG, now_ms=1000 * HOUR_MS)
    assert not drops_tombstones(cleaned, CONFIG, now_ms=25 * HOUR_MS - 1)
    assert drops_tombstones(cleaned, CONFIG, now_ms=25 * HOUR_MS)


def test_delete_retention_starts_at_the_first_cleaning_of_the_latest_segment() -> None:
    fresh, other = segments_of(10, 20)
    early = msgspec.structs.replace(fresh, cleaned_at_ms=5)
    late = msgspec.structs.replace(other, cleaned_at_ms=7)

    assert cleaned_at_ms([early], range_end_offset=20, now_ms=99) == 5
    assert cleaned_at_ms([early, late], range_end_offset=20, now_ms=99) == 7
    assert cleaned_at_ms([early, other], range_end_offset=20, now_ms=99) == 99
    assert cleaned_at_ms([early, other], range_end_offset=19, now_ms=99) is None


def test_small_segments_are_merged_but_not_a_partly_cleaned_one() -> None:
    segments = segments_of(10, 20, 30, 40, 50, sizes=(60, 30, 11, 20, 20))

    def bases(range_end_offset: int) -> list[list[int]]:
        runs = group_segments(segments, range_end_offset=range_end_offset, segment_bytes=100)
        return [[each.base_offset for each in run] for run in runs]

    assert bases(50) == [[0, 10], [20, 30, 40]]
    assert bases(35) == [[0, 10], [20], [30]]
    assert bases(10) == [[0]]
    assert bases(0) == []


@given(
    st.lists(st.integers(1, 120), max_size=8),
    st.lists(st.integers(1, 1 << 32), min_size=8, max_size=8),
    st.integers(0, 8),
)
def test_groups_are_all_segments_in_order_and_fit(
    sizes: list[int], spans: list[int], reached: int
) -> None:
    ends = [sum(spans[: number + 1]) for number in range(len(sizes))]
    segments = segments_of(*ends, sizes=tuple(sizes))
    range_end = sum(spans[:reached])

    runs = list(group_segments(segments, range_end_offset=range_end, segment_bytes=100))

    assert [each for run in runs for each in run] == segments[:reached]
    for run in runs:
        assert len(run) == 1 or sum(each.size_bytes for each in run) <= 100
        assert len(run) == 1 or run[-1].end_offset - run[0].base_offset < 1 << 32
