"""Texts of durations and sizes in settings."""

import pytest

from tidelog.wire.config.settings import (
    UNLIMITED,
    parse_bounded,
    parse_bounded_count,
    parse_bounded_duration,
    parse_bounded_size,
    parse_bytes_or_unlimited,
    parse_choice,
    parse_count_up_to,
    parse_duration_ms,
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
    ("text", "duration_ms"),
    [
        ("7", 7),
        ("7ms", 7),
        ("7s", 7_000),
        ("7m", 420_000),
        ("7min", 420_000),
        ("7h", 25_200_000),
        ("7d", 604_800_000),
    ],
)
def test_a_duration_has_units_from_milliseconds_to_days(text: str, duration_ms: int) -> None:
    assert parse_duration_ms("wait_ms", text) == duration_ms


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
