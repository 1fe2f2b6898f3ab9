"""Times and durations as text."""

import pytest

from tidelog.cli.output.times import age_text, moment_text, parse_since_ms

NOW_MS = 1_700_000_000_123
SECOND = 1000
HOUR = 3600 * SECOND


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [
        ("0s", 0),
        ("250ms", 250),
        ("5s", 5 * SECOND),
        ("30min", HOUR // 2),
        ("30m", HOUR // 2),
        ("1h", HOUR),
        ("1 H", HOUR),
        ("2h ago", 2 * HOUR),
        (" 7d ", 7 * 24 * HOUR),
        ("2w", 14 * 24 * HOUR),
        ("1h30m", 3 * HOUR // 2),
        ("1h 30min ago", 3 * HOUR // 2),
    ],
)
def test_a_duration_counts_back_from_now(text: str, ago_ms: int) -> None:
    assert parse_since_ms(text, now_ms=NOW_MS) == NOW_MS - ago_ms


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2023-11-14T22:13:20.123Z", NOW_MS),
        ("2023-11-14T23:13:20.123+01:00", NOW_MS),
        ("2023-11-14 22:13:20.123+00:00", NOW_MS),
    ],
)
def test_a_time_with_a_zone_is_that_time(text: str, time_ms: int) -> None:
    assert parse_since_ms(text, now_ms=0) == time_ms


def test_a_time_without_a_zone_is_one_of_this_machine() -> None:
    day_ms = 24 * HOUR

    midnight_ms = parse_since_ms("2023-11-14", now_ms=NOW_MS)

    assert parse_since_ms("2023-11-14T00:00", now_ms=NOW_MS) == midnight_ms
    assert abs(midnight_ms - parse_since_ms("2023-11-14T00:00Z", now_ms=NOW_MS)) <= day_ms


@pytest.mark.parametrize("text", ["999999999w", "1950-01-01T00:00:00Z", "1200-01-01"])
def test_nothing_is_before_1970(text: str) -> None:
    assert parse_since_ms(text, now_ms=NOW_MS) == 0


@pytest.mark.parametrize(
    "text", ["", "yesterday", "5", "5 parsecs", "-5s", "2023-13-01", "9" * 30 + "h", "30min 1h"]
)
def test_what_is_not_a_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"is not a time: write a time such as 2025-01-31T12:00:00Z"
    ):
        parse_since_ms(text, now_ms=NOW_MS)


def test_a_moment_is_shown_in_utc() -> None:
    assert moment_text(1_700_000_000_123) == "2023-11-14 22:13:20 UTC"


def test_a_number_beyond_the_year_9999_is_shown_in_milliseconds() -> None:
    assert moment_text(1_700_000_000_123_456) == "1700000000123456 ms"
    assert moment_text(-(1 << 63)) == "-9223372036854775808 ms"


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        (0, "0 s"),
        (999, "0 s"),
        (17_000, "17 s"),
        (245_000, "4 min 5 s"),
        (3_605_000, "1 h"),
        (51 * 3_600_000, "2 d 3 h"),
        (5000 * 86_400_000, "5,000 d"),
    ],
)
def test_an_age_has_its_two_largest_units(age_ms: int, text: str) -> None:
    assert age_text(age_ms) == text
