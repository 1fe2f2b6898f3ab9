"""Texts of durations and sizes in settings."""

import re

import pytest

from tidelog.wire.config.durations import duration_ms, parse_duration_ms, portable_settings
from tidelog.wire.config.settings import (
    UNLIMITED,
    parse_bounded,
    parse_bounded_count,
    parse_bounded_duration,
    parse_bounded_size,
    parse_bytes_or_unlimited,
    parse_choice,
    parse_count_up_to,
    parse_size_bytes,
)
from tidelog.wire.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("7", 7),
        ("7b", 7),
        ("7KiB", 7 * 1024),
        ("7MiB", 7 * 1024**2),
        ("7GiB", 7 * 1024**3),
        ("7TiB", 7 * 1024**4),
        ("7kB", 7_000),
        ("7MB", 7_000_000),
        ("7GB", 7_000_000_000),
        ("7 TB", 7_000_000_000_000),
    ],
)
def test_a_size_has_binary_and_decimal_units(text: str, size_bytes: int) -> None:
    assert parse_size_bytes("size", text) == size_bytes


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("7", 7),
        ("7ms", 7),
        ("7s", 7_000),
        ("7m", 420_000),
        ("7min", 420_000),
        ("7h", 25_200_000),
        ("8d", 691_200_000),
        ("1w", 604_800_000),
        ("2 Weeks", 1_209_600_000),
        ("1h30m", 5_400_000),
        (" 1d 2h 3min 4s 5ms ", 93_784_005),
    ],
)
def test_a_duration_has_units_from_milliseconds_to_weeks(text: str, expected_ms: int) -> None:
    assert parse_duration_ms("wait_ms", text) == expected_ms


@pytest.mark.parametrize(
    "text", ["", "d", "-1s", "1.5h", "8 parsecs", "1h30", "30m1h", "1s1s", "\u0663s", "9" * 19]
)
def test_what_is_no_duration_is_refused_by_name_and_value(text: str) -> None:
    wanted = f"wait_ms is {text!r}, it must be a duration such as 8d, 1h30m, 90s or 250ms"
    with pytest.raises(InvalidConfigError, match=f"^{re.escape(wanted)}$"):
        parse_duration_ms("wait_ms", text)


def test_a_bare_number_has_the_unit_of_its_place_or_none() -> None:
    assert duration_ms("5", bare_unit_ms=1000) == 5000
    assert duration_ms("5", bare_unit_ms=None) is None
    assert duration_ms("5s", bare_unit_ms=None) == 5000


def test_durations_in_metadata_are_those_that_older_versions_read() -> None:
    given = {
        "retention_ms": "1w",
        "visibility_timeout_ms": "1h30m",
        "delivery_delay_ms": " 30 S",
        "scrub_interval_ms@3": "2weeks",
        "retry_backoff": "exponential(1sec,2,1min 30s,jitter)",
        "dead_letter_queue": "1w",
    }

    assert portable_settings(given) == {
        "retention_ms": "7d",
        "visibility_timeout_ms": "90min",
        "delivery_delay_ms": " 30 S",
        "scrub_interval_ms@3": "14d",
        "retry_backoff": "exponential(1s,2,90s,jitter)",
        "dead_letter_queue": "1w",
    }
    assert portable_settings({"retry_backoff": "1s,1m,1w"}) == {"retry_backoff": "1s,1m,7d"}


def test_both_bounds_of_a_setting_are_legal() -> None:
    parsers = (
        parse_bounded_count(low=3, high=9),
        parse_bounded_duration(low=3, high=9),
        parse_bounded_size(low=3, high=9),
        parse_bounded(parse_size_bytes, low=3, high=9),
    )
    for parse in parsers:
        assert (parse("limit", "3"), parse("limit", "9")) == (3, 9)
        with pytest.raises(InvalidConfigError, match="limit is '2', it must be at least 3"):
            parse("limit", "2")
        with pytest.raises(InvalidConfigError, match="limit is '10', it must be at most 9"):
            parse("limit", "10")


def test_a_setting_without_an_upper_bound_has_none() -> None:
    for parse in (parse_bounded(parse_size_bytes, low=1), parse_bounded_duration(low=1)):
        assert parse("limit", "9" * 18) == int("9" * 18)
        with pytest.raises(InvalidConfigError, match="at least 1"):
            parse("limit", "0")


def test_a_count_begins_with_1() -> None:
    parse = parse_count_up_to(5)

    assert [parse("replicas", text) for text in ("1", " 5 ")] == [1, 5]
    for wrong, wanted in (("0", "at least 1"), ("6", "at most 5"), ("1.0", "a number")):
        with pytest.raises(InvalidConfigError, match=f"replicas is '{wrong}', .*{wanted}"):
            parse("replicas", wrong)


def test_a_size_may_be_unlimited() -> None:
    parse = parse_bytes_or_unlimited(low=4096)

    assert [parse("size", text) for text in (UNLIMITED, " Unlimited ")] == [None, None]
    assert parse("size", "4KiB") == 4096
    for wrong in ("unlimitedly", "unlimite", "never", "zero"):
        with pytest.raises(InvalidConfigError, match=f"size is '{wrong}', it must be a size"):
            parse("size", wrong)
    with pytest.raises(InvalidConfigError, match="size is '4095', it must be at least 4096"):
        parse("size", "4095")


def test_a_choice_is_one_of_its_words() -> None:
    parse = parse_choice("all", "leader")

    assert [parse("acks", word) for word in ("all", "leader")] == ["all", "leader"]
    with pytest.raises(InvalidConfigError, match="acks is 'none', it must be one of all, leader"):
        parse("acks", "none")
