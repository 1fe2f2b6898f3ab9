"""Retention deletes whole segments, the oldest first, and only by a limit; and ingest rates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paths import ROOT
from tidelog.logstore.config import LogConfig
from tidelog.logstore.retention.ingest_rate import (
    SHORTEST_MS,
    WINDOW_MS,
    IngestRate,
    ingest_rate_of,
)
from tidelog.logstore.retention.retention import (
    ActiveSegmentInfo,
    LogSummary,
    SegmentInfo,
    committed_count,
    deletable_count,
    surplus_counts,
)

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
def test_wanted_segments_are_deleted_only_if_committed() -> None:
    assert committed_count(sealed(0, 0, 0), 2, high_watermark=1000) == 2
    assert committed_count(sealed(0, 0, 0), 9, high_watermark=1000) == 3
    assert committed_count(sealed(0, 0, 0), 2, high_watermark=19) == 1
    assert committed_count(sealed(0, 0, 0), 0, high_watermark=1000) == 0


def test_no_segment_is_deleted_without_a_retention_limit() -> None:
    assert count(sealed(0, 0, 0), KEEP_ALL) == 0


def test_a_segment_is_deleted_when_its_newest_record_exceeds_retention_ms() -> None:
    config = LogConfig(retention_ms=HOUR_MS)
    limit = NOW_MS - HOUR_MS

    assert count(sealed(limit - 1, limit - 1, limit), config) == 2
    assert count(sealed(limit), config) == 0


def test_an_old_segment_after_a_newer_one_stays() -> None:
    config = LogConfig(retention_ms=HOUR_MS)

    assert count(sealed(0, NOW_MS, 0), config) == 1


@pytest.mark.parametrize(
    ("retention_bytes", "expected"),
    [(400, 0), (399, 0), (301, 0), (300, 1), (201, 1), (200, 2), (100, 3), (99, 3), (0, 3)],
)
def test_retention_bytes_deletes_only_whole_surplus_segments(
    retention_bytes: int, expected: int
) -> None:
    """The limit is the minimum that is kept."""
    config = LogConfig(retention_ms=None, retention_bytes=retention_bytes)

    assert count(sealed(NOW_MS, NOW_MS, NOW_MS), config) == expected


@pytest.mark.invariant("I20")
@pytest.mark.parametrize(
    ("high_watermark", "expected"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)]
)
def test_retention_deletes_nothing_above_the_high_watermark(
    high_watermark: int, expected: int
) -> None:
    config = LogConfig(retention_ms=HOUR_MS, retention_bytes=0)

    assert count(sealed(0, 0, 0), config, high_watermark=high_watermark) == expected


@pytest.mark.parametrize(("log_start_offset", "expected"), [(0, 0), (9, 0), (10, 1), (35, 3)])
def test_segments_below_the_log_start_offset_are_deleted_without_a_limit(
    log_start_offset: int, expected: int
) -> None:
    segments = sealed(NOW_MS, NOW_MS, NOW_MS)

    assert count(segments, KEEP_ALL, log_start_offset=log_start_offset) == expected


@given(
    ages=st.lists(st.integers(0, 3 * HOUR_MS), max_size=6),
    sizes=st.lists(st.integers(1, 200), min_size=6, max_size=6),
    retention_ms=st.none() | st.integers(1, 3 * HOUR_MS),
    retention_bytes=st.none() | st.integers(0, 600),
    high_watermark=st.integers(0, 70),
)
def test_remaining_segments_are_within_the_retention_limits(
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


def log(*newest_ms: int, size_bytes: int = 100, active_bytes: int = 50) -> LogSummary:
    sealed = [SegmentInfo(size_bytes, 10, newest) for newest in newest_ms]
    return LogSummary(sealed, ActiveSegmentInfo(10, 20, active_bytes, None))


def test_nothing_goes_while_all_of_it_fits() -> None:
    assert surplus_counts([log(1, 2), log(3)], max_bytes=400) == [0, 0]
    assert surplus_counts([], max_bytes=0) == []


def test_the_oldest_segments_of_all_logs_are_deleted_first() -> None:
    logs = [log(5, 9), log(1, 2, 8), log()]

    assert surplus_counts(logs, max_bytes=649) == [0, 1, 0]
    assert surplus_counts(logs, max_bytes=449) == [1, 2, 0]


def test_an_old_segment_behind_a_young_one_waits_for_it() -> None:
    assert surplus_counts([log(9, 1), log(5)], max_bytes=399) == [0, 1]


def test_the_segments_that_grow_stay() -> None:
    assert surplus_counts([log(1, 2), log(3)], max_bytes=0) == [2, 1]


@pytest.mark.invariant("I20")
@given(
    st.lists(st.lists(st.integers(0, 50), max_size=6), max_size=6),
    st.integers(0, 4000),
)
def test_as_much_goes_as_must_and_not_a_segment_more(
    newest: list[list[int]], max_bytes: int
) -> None:
    logs = [log(*sorted(each)) for each in newest]

    counts = surplus_counts(logs, max_bytes=max_bytes)

    left = sum(each.size_bytes for each in logs) - 100 * sum(counts)
    assert left <= max_bytes or counts == [len(each) for each in newest]
    assert not any(counts) or left + 100 > max_bytes
    gone = [time for each, count in zip(logs, counts, strict=True) for time in _times(each)[:count]]
    kept = [time for each, count in zip(logs, counts, strict=True) for time in _times(each)[count:]]
    assert max(gone, default=0) <= min(kept, default=50)


def _times(facts: LogSummary) -> list[int]:
    return [each.newest_ms for each in facts.sealed]


DAY_MS = 24 * HOUR_MS


def sealed_before(days_ago: float, *, size_bytes: int = 1000, end_offset: int = 0) -> SegmentInfo:
    sealed_at_ms = NOW_MS - int(days_ago * DAY_MS)
    return SegmentInfo(size_bytes, end_offset, sealed_at_ms, sealed_at_ms)


def active(
    base_offset: int = 0, end_offset: int = 0, *, size_bytes: int = 64, days_ago: float | None = 0
) -> ActiveSegmentInfo:
    first_append_ms = None if days_ago is None else NOW_MS - int(days_ago * DAY_MS)
    return ActiveSegmentInfo(base_offset, end_offset, size_bytes, first_append_ms)


def rate_of(
    sealed: list[SegmentInfo], active: ActiveSegmentInfo, *, now_ms: int
) -> IngestRate | None:
    return ingest_rate_of(LogSummary(sealed, active), now_ms=now_ms)


def test_the_ingest_rate_counts_from_the_first_segment_sealed_in_the_window() -> None:
    segments = [
        sealed_before(30, size_bytes=1_000_000, end_offset=100),
        sealed_before(4, size_bytes=5000, end_offset=200),
        sealed_before(2, size_bytes=600, end_offset=250),
        sealed_before(1, size_bytes=300, end_offset=280),
    ]

    grown = rate_of(segments, active(280, 300, size_bytes=100), now_ms=NOW_MS)

    assert grown == IngestRate((600 + 300 + 100) // 4, (300 - 200) // 4)


def test_a_log_with_few_appends_has_a_low_ingest_rate() -> None:
    segments = [sealed_before(30, end_offset=90), sealed_before(20, end_offset=100)]

    assert rate_of(segments, active(100, 120, size_bytes=4000), now_ms=NOW_MS) == IngestRate(200, 1)


def test_the_ingest_rate_without_sealed_segments_counts_from_the_first_record() -> None:
    assert rate_of([], active(7, 57, size_bytes=500, days_ago=0.5), now_ms=NOW_MS) == IngestRate(
        1000, 100
    )


def test_an_empty_log_has_no_ingest_rate() -> None:
    assert rate_of([], active(days_ago=None), now_ms=NOW_MS) is None


def test_some_seconds_give_no_ingest_rate() -> None:
    almost = (SHORTEST_MS - 1) / DAY_MS

    assert rate_of([], active(0, 9, days_ago=almost), now_ms=NOW_MS) is None
    assert rate_of([sealed_before(almost)], active(0, 9), now_ms=NOW_MS) is None
    assert rate_of([], active(0, 9, days_ago=SHORTEST_MS / DAY_MS), now_ms=NOW_MS) is not None


def test_a_clock_that_jumps_back_gives_no_negative_ingest_rate() -> None:
    assert rate_of([sealed_before(-1)], active(0, 9), now_ms=NOW_MS) is None


def test_the_documented_times_of_the_ingest_rate_are_those_of_the_code() -> None:
    page = " ".join((ROOT / "docs" / "operations.md").read_text(encoding="utf-8").split())

    assert f"sealed within the last {WINDOW_MS / DAY_MS:g} days" in page
    assert "It is empty if that was less than a minute ago" in page
    assert SHORTEST_MS == 60_000
