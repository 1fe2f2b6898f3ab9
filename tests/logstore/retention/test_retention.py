"""Only whole segments go, the oldest first, and only for a reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.logstore.config import LogConfig
from tidelog.logstore.retention.retention import SegmentInfo, committed_count, deletable_count

HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS
KEEP_ALL = LogConfig(retention_ms=None, retention_bytes=None)


def sealed(*newest_ms: int, size_bytes: int = 100) -> list[SegmentInfo]:
    """Return segments of 10 records each."""
    return [
        SegmentInfo(size_bytes, 10 * number, newest)
        for number, newest in enumerate(newest_ms, start=1)
    ]


def count(
    segments: list[SegmentInfo],
    config: LogConfig,
    *,
    active_bytes: int = 100,
    high_watermark: int = 1000,
    log_start_offset: int = 0,
) -> int:
    return deletable_count(
        segments,
        config=config,
        active_bytes=active_bytes,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        now_ms=NOW_MS,
    )


@pytest.mark.invariant("I20")
def test_so_many_as_somebody_wants_go_but_nothing_that_is_not_committed() -> None:
    assert committed_count(sealed(0, 0, 0), 2, high_watermark=1000) == 2
    assert committed_count(sealed(0, 0, 0), 9, high_watermark=1000) == 3
    assert committed_count(sealed(0, 0, 0), 2, high_watermark=19) == 1
    assert committed_count(sealed(0, 0, 0), 0, high_watermark=1000) == 0


def test_nothing_goes_without_a_limit() -> None:
    assert count(sealed(0, 0, 0), KEEP_ALL) == 0


def test_a_segment_goes_when_its_newest_record_is_too_old() -> None:
    config = LogConfig(retention_ms=HOUR_MS)
    limit = NOW_MS - HOUR_MS

    assert count(sealed(limit - 1, limit - 1, limit), config) == 2
    assert count(sealed(limit), config) == 0


def test_an_old_segment_behind_a_young_one_stays() -> None:
    config = LogConfig(retention_ms=HOUR_MS)

    assert count(sealed(0, NOW_MS, 0), config) == 1


@pytest.mark.parametrize(
    ("retention_bytes", "expected"),
    [(400, 0), (399, 0), (301, 0), (300, 1), (201, 1), (200, 2), (100, 3), (99, 3), (0, 3)],
)
def test_segments_go_while_the_log_stays_at_least_as_large_as_it_may_be(
    retention_bytes: int, expected: int
) -> None:
    """The limit says how much is kept, so it is never undercut."""
    config = LogConfig(retention_ms=None, retention_bytes=retention_bytes)

    assert count(sealed(NOW_MS, NOW_MS, NOW_MS), config) == expected


@pytest.mark.invariant("I20")
@pytest.mark.parametrize(
    ("high_watermark", "expected"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)]
)
def test_nothing_above_the_high_watermark_goes(high_watermark: int, expected: int) -> None:
    config = LogConfig(retention_ms=HOUR_MS, retention_bytes=0)

    assert count(sealed(0, 0, 0), config, high_watermark=high_watermark) == expected


@pytest.mark.parametrize(("log_start_offset", "expected"), [(0, 0), (9, 0), (10, 1), (35, 3)])
def test_what_was_deleted_goes_without_any_limit(log_start_offset: int, expected: int) -> None:
    segments = sealed(NOW_MS, NOW_MS, NOW_MS)

    assert count(segments, KEEP_ALL, log_start_offset=log_start_offset) == expected


@given(
    ages=st.lists(st.integers(0, 3 * HOUR_MS), max_size=6),
    sizes=st.lists(st.integers(1, 200), min_size=6, max_size=6),
    retention_ms=st.none() | st.integers(1, 3 * HOUR_MS),
    retention_bytes=st.none() | st.integers(0, 600),
    high_watermark=st.integers(0, 70),
)
def test_what_stays_is_within_the_limits_or_has_to_stay(
    ages: list[int],
    sizes: list[int],
    retention_ms: int | None,
    *,
    retention_bytes: int | None,
    high_watermark: int,
) -> None:
    segments = [
        SegmentInfo(size, 10 * number, NOW_MS - age)
        for number, (age, size) in enumerate(zip(ages, sizes, strict=False), start=1)
    ]
    config = LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes)

    gone = count(segments, config, high_watermark=high_watermark)

    kept_bytes = 100 + sum(segment.size_bytes for segment in segments[gone:])
    assert all(segment.end_offset <= high_watermark for segment in segments[:gone])
    if gone < len(segments) and segments[gone].end_offset <= high_watermark:
        first = segments[gone]
        assert retention_ms is None or NOW_MS - first.newest_ms <= retention_ms
        assert retention_bytes is None or kept_bytes - first.size_bytes < retention_bytes
