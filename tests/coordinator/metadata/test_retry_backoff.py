"""How long messages wait that were given back: lists, rules, and what is neither."""

import pytest

from tidelog.coordinator.metadata.queue_config import queue_config
from tidelog.coordinator.metadata.retry_backoff import (
    DelayList,
    ExponentialBackoff,
    RetryBackoff,
    parse_backoff,
)
from tidelog.wire.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("text", "backoff"),
    [
        ("none", DelayList()),
        ("1s", DelayList((1000,))),
        ("1s, 10s,1min", DelayList((1000, 10_000, 60_000))),
        ("250", DelayList((250,))),
        ("exponential(1s,2,5s)", ExponentialBackoff(1000, 2.0, 5000, 0.0)),
        ("Exponential(1s, 1.5, 3s, jitter)", ExponentialBackoff(1000, 1.5, 3000, 0.5)),
    ],
)
def test_a_backoff_is_a_list_of_delays_or_a_rule(text: str, backoff: RetryBackoff) -> None:
    assert parse_backoff("retry_backoff", text) == backoff
    assert queue_config({"retry_backoff": text}, is_fifo=False).retry_backoff == backoff


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it must be"),
        ("1s,,2s", "it must be"),
        ("exponential(1s,2)", "takes the first delay, a factor and the longest"),
        ("exponential()", "takes the first delay"),
        ("exponential(jitter)", "takes the first delay"),
        ("exponential(1s,-2,5min)", "takes the first delay"),
        ("exponential(1s,1,5min)", "the factor from 1.1 to 100"),
        ("exponential(0,2,5min)", "at least 1ms"),
        ("exponential(5min,2,1s)", "the longest at least as long"),
        ("exponential(1s,2,13h)", "longer than 12h"),
        ("13h", "longer than 12h"),
        (",".join(["1s"] * 101), "100 are the most"),
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        parse_backoff("retry_backoff", text)
