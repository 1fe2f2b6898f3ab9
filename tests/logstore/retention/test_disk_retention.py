"""The oldest segments of all logs go first when a disk is to hold less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.logstore.retention.disk_retention import surplus_counts
from tidelog.logstore.retention.retention import ActiveSegmentInfo, LogSummary, SegmentInfo


def log(*newest_ms: int, size_bytes: int = 100, active_bytes: int = 50) -> LogSummary:
    sealed = [SegmentInfo(size_bytes, 10, newest) for newest in newest_ms]
    return LogSummary(sealed, ActiveSegmentInfo(10, 20, active_bytes, None))


def test_nothing_goes_while_all_of_it_fits() -> None:
    assert surplus_counts([log(1, 2), log(3)], bytes_max=400) == [0, 0]
    assert surplus_counts([], bytes_max=0) == []


def test_the_oldest_go_first_whatever_log_they_are_in() -> None:
    logs = [log(5, 9), log(1, 2, 8), log()]

    assert surplus_counts(logs, bytes_max=649) == [0, 1, 0]
    assert surplus_counts(logs, bytes_max=449) == [1, 2, 0]


def test_an_old_segment_behind_a_young_one_waits_for_it() -> None:
    assert surplus_counts([log(9, 1), log(5)], bytes_max=399) == [0, 1]


def test_the_segments_that_grow_stay() -> None:
    assert surplus_counts([log(1, 2), log(3)], bytes_max=0) == [2, 1]


@pytest.mark.invariant("I20")
@given(
    st.lists(st.lists(st.integers(0, 50), max_size=6), max_size=6),
    st.integers(0, 4000),
)
def test_as_much_goes_as_must_and_not_a_segment_more(
    newest: list[list[int]], bytes_max: int
) -> None:
    logs = [log(*sorted(each)) for each in newest]

    counts = surplus_counts(logs, bytes_max=bytes_max)

    left = sum(each.size_bytes for each in logs) - 100 * sum(counts)
    assert left <= bytes_max or counts == [len(each) for each in newest]
    assert not any(counts) or left + 100 > bytes_max
    gone = [time for each, count in zip(logs, counts, strict=True) for time in _times(each)[:count]]
    kept = [time for each, count in zip(logs, counts, strict=True) for time in _times(each)[count:]]
    assert max(gone, default=0) <= min(kept, default=50)


def _times(facts: LogSummary) -> list[int]:
    return [each.newest_ms for each in facts.sealed]
