"""Tests of how fast a log is said to grow."""

from tidelog.logstore.retention.ingest_rate import SHORTEST_MS, IngestRate
from tidelog.logstore.retention.ingest_rate import ingest_rate_of as growth_of_log
from tidelog.logstore.retention.retention import ActiveSegmentInfo, LogSummary, SegmentInfo

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_700_000_000_000


def sealed(days_ago: float, *, size_bytes: int = 1000, end_offset: int = 0) -> SegmentInfo:
    sealed_at_ms = NOW_MS - int(days_ago * DAY_MS)
    return SegmentInfo(size_bytes, end_offset, sealed_at_ms, sealed_at_ms)


def active(
    base_offset: int = 0, end_offset: int = 0, *, size_bytes: int = 64, days_ago: float | None = 0
) -> ActiveSegmentInfo:
    first_append_ms = None if days_ago is None else NOW_MS - int(days_ago * DAY_MS)
    return ActiveSegmentInfo(base_offset, end_offset, size_bytes, first_append_ms)


def ingest_rate_of(
    sealed: list[SegmentInfo], active: ActiveSegmentInfo, *, now_ms: int
) -> IngestRate | None:
    return growth_of_log(LogSummary(sealed, active), now_ms=now_ms)


def test_it_is_what_came_behind_the_first_segment_that_was_sealed_of_late() -> None:
    segments = [
        sealed(30, size_bytes=1_000_000, end_offset=100),
        sealed(4, size_bytes=5000, end_offset=200),
        sealed(2, size_bytes=600, end_offset=250),
        sealed(1, size_bytes=300, end_offset=280),
    ]

    grown = ingest_rate_of(segments, active(280, 300, size_bytes=100), now_ms=NOW_MS)

    assert grown == IngestRate((600 + 300 + 100) // 4, (300 - 200) // 4)


def test_a_log_into_which_little_comes_grows_slowly() -> None:
    segments = [sealed(30, end_offset=90), sealed(20, end_offset=100)]

    assert ingest_rate_of(segments, active(100, 120, size_bytes=4000), now_ms=NOW_MS) == IngestRate(
        200, 1
    )


def test_without_sealed_segments_it_counts_from_the_first_record() -> None:
    assert ingest_rate_of(
        [], active(7, 57, size_bytes=500, days_ago=0.5), now_ms=NOW_MS
    ) == IngestRate(1000, 100)


def test_a_log_that_never_got_a_record_says_nothing() -> None:
    assert ingest_rate_of([], active(days_ago=None), now_ms=NOW_MS) is None


def test_some_seconds_say_nothing_of_a_day() -> None:
    almost = (SHORTEST_MS - 1) / DAY_MS

    assert ingest_rate_of([], active(0, 9, days_ago=almost), now_ms=NOW_MS) is None
    assert ingest_rate_of([sealed(almost)], active(0, 9), now_ms=NOW_MS) is None
    assert (
        ingest_rate_of([], active(0, 9, days_ago=SHORTEST_MS / DAY_MS), now_ms=NOW_MS) is not None
    )


def test_a_clock_that_was_put_back_makes_no_log_shrink() -> None:
    assert ingest_rate_of([sealed(-1)], active(0, 9), now_ms=NOW_MS) is None
