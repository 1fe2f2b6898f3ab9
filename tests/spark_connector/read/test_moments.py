"""Tests of times in options: milliseconds, ISO 8601, and ages."""

import pytest

from tidelog.spark_connector.read.moments import Moment, parse_moment
from tidelog.wire.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", Moment(0)),
        (" 1700000000000 ", Moment(1_700_000_000_000)),
        ("1970-01-02T00:00:00Z", Moment(86_400_000)),
        ("1970-01-01T01:00:00.5+01:00", Moment(500)),
        ("1970-01-01T00:00:00.000001Z", Moment(1)),
        ("1970-01-01T00:00:00.001Z", Moment(1)),
        ("1969-12-31T23:00:00Z", Moment(0)),
        ("1h", Moment(3_600_000, is_age=True)),
        ("1h30m", Moment(5_400_000, is_age=True)),
        ("7 days ago", Moment(604_800_000, is_age=True)),
    ],
)
def test_a_time_is_milliseconds_or_iso_8601_or_an_age(text: str, expected: Moment) -> None:
    assert parse_moment("startingTimestamp", text) == expected


@pytest.mark.parametrize("text", ["-1", "yesterday", "1 month", "2026-13-01T00:00Z", str(1 << 63)])
def test_an_invalid_time_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^startingTimestamp must be .*ms|milliseconds.*1h30m"):
        parse_moment("startingTimestamp", text)


@pytest.mark.parametrize("text", ["2026-01-31", "2026-01-31T12:00", "2026-01-31 12:00:00"])
def test_a_time_without_a_zone_is_refused_with_the_form_for_utc(text: str) -> None:
    with pytest.raises(ConfigError, match=r"has no time zone: write 2026-01-31T\d\d:00:00Z"):
        parse_moment("endingTimestamp", text)


def test_an_age_is_relative_to_now() -> None:
    assert Moment(500, is_age=True).at(1700) == 1200
    assert Moment(500, is_age=True).at(300) == 0
    assert Moment(500).at(1700) == 500
