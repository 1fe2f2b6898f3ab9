"""How long a record stays, as far as retention goes."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidelog.logstore.config import LogConfig
from tidelog.logstore.retention.retention import (
    ActiveFacts,
    LogFacts,
    SegmentFacts,
    deletable_count,
)
from tidelog.logstore.retention.retention_forecast import Outlook, outlook_of

NOW_MS = 1_700_000_000_000
LIMITED = LogConfig(retention_ms=1000, retention_bytes=500)
ENDLESS = LogConfig(retention_ms=None)


def log(*segments: tuple[int, int], active_bytes: int = 50) -> LogFacts:
    """Return a log of sealed segments of ten records each: size in bytes, and newest time."""
    sealed = [
        SegmentFacts(size_bytes, 10 * number, NOW_MS + newest)
        for number, (size_bytes, newest) in enumerate(segments, 1)
    ]
    return LogFacts(sealed, ActiveFacts(10 * len(segments), 99, active_bytes, None))


def outlook(
    facts: LogFacts, offset: int, *, sent_ms: int = 0, config: LogConfig = LIMITED
) -> Outlook:
    return outlook_of(facts, config, offset, timestamp_ms=NOW_MS + sent_ms, now_ms=NOW_MS)


def test_a_segment_goes_when_its_newest_record_is_too_old_and_as_much_is_behind_it() -> None:
    facts = log((100, -700), (200, -600))

    assert outlook(facts, 9) == Outlook(NOW_MS - 700, NOW_MS + 300, 250)
    assert outlook(facts, 10) == Outlook(NOW_MS - 600, NOW_MS + 400, 450)


def test_none_goes_before_those_that_are_older() -> None:
    assert outlook(log((100, -100), (100, -900)), 15).goes_at_ms == NOW_MS + 900


def test_of_the_segment_that_grows_a_record_goes_at_the_earliest_when_it_is_too_old_itself() -> (
    None
):
    facts = log((100, -700))

    assert outlook(facts, 10, sent_ms=-400) == Outlook(None, NOW_MS + 600, 500)
    assert outlook(facts, 10, sent_ms=10_000).goes_at_ms == NOW_MS + 1000


def test_what_is_due_has_nothing_left() -> None:
    facts = log((100, -2000), (600, -5))

    assert outlook(facts, 0) == Outlook(NOW_MS - 2000, NOW_MS - 1000, 0)


def test_without_limits_a_record_stays() -> None:
    assert outlook(log((100, -700)), 0, config=ENDLESS) == Outlook(NOW_MS - 700, None, None)


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(-1500, 0)), min_size=1, max_size=6),
    st.integers(0, 900),
    st.integers(0, 59),
)
def test_it_stays_as_long_as_it_is_said_and_goes_with_the_next_byte(
    segments: list[tuple[int, int]], retention_bytes: int, offset: int
) -> None:
    config = replace(ENDLESS, retention_bytes=retention_bytes)
    facts = log(*segments)
    place = min(offset // 10, len(segments) - 1)

    left = outlook(facts, place * 10, config=config).bytes_left

    assert left is not None

    def gone(more_bytes: int) -> bool:
        count = deletable_count(
            facts.sealed,
            config=config,
            active_bytes=facts.active.size_bytes + more_bytes,
            high_watermark=1000,
            log_start_offset=0,
            now_ms=NOW_MS,
        )
        return count > place

    assert gone(left)
    assert left == 0 or not gone(left - 1)
