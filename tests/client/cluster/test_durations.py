"""Lengths of time in settings are read as brokers write them."""

import pytest

from tidelog.client.cluster.durations import milliseconds_of, seconds_of
from tidelog.wire.errors import WireFormatError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("250ms", 0.25), ("1500", 1.5), ("30s", 30), ("2 min", 120), ("1H", 3600)],
)
def test_units_are_those_of_settings(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "none", "1 fortnight", "-1s", "1.5s"])
def test_what_is_no_length_of_time_is_not_guessed(text: str) -> None:
    with pytest.raises(WireFormatError, match="is no length of time"):
        seconds_of(text)


@pytest.mark.parametrize("seconds", [-0.001, float("inf"), float("nan")])
def test_no_length_of_time_is_negative_or_endless(seconds: float) -> None:
    with pytest.raises(ValueError, match="delay is a number of seconds from 0 on"):
        milliseconds_of("delay", seconds)
