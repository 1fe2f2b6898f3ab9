"""Texts of durations and sizes in settings."""

import pytest

from tidelog.wire.config.settings import parse_duration_ms, parse_size_bytes


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
