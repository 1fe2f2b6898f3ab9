"""Retry backoff: delay lists, exponential rules, and texts that are neither."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.wire.config.queue_config import queue_config
from tidelog.wire.config.retry_backoff import (
    NO_BACKOFF,
    ExponentialBackoff,
    FixedBackoff,
    RetryBackoff,
    parse_backoff,
)
from tidelog.wire.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("text", "backoff"),
    [
        ("none", NO_BACKOFF),
        ("1s", FixedBackoff((1000,))),
        ("1s, 10s,1min", FixedBackoff((1000, 10_000, 60_000))),
        ("250", FixedBackoff((250,))),
        (
            "exponential(1s,2,5s)",
            ExponentialBackoff(base_ms=1000, factor=2.0, cap_ms=5000, jitter=0.0),
        ),
        (
            "Exponential(1s, 1.5, 3s, jitter)",
            ExponentialBackoff(base_ms=1000, factor=1.5, cap_ms=3000, jitter=0.5),
        ),
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
        (",".join(["1s"] * 101), "it may have at most 100"),
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        parse_backoff("retry_backoff", text)


@pytest.mark.parametrize(
    ("text", "first_ms", "last_ms"),
    [
        (",".join(["1s"] * 99 + ["2s"]), 1000, 2000),
        ("0,12h", 0, 43_200_000),
        ("exponential(1ms,1.1,1ms)", 1, 1),
        ("exponential(1ms,100,12h)", 1, 43_200_000),
    ],
)
def test_a_backoff_at_its_limits_is_accepted(text: str, first_ms: int, last_ms: int) -> None:
    backoff = parse_backoff("retry_backoff", text)

    assert backoff.delay_ms(1, lease_id=1, offset=1) == first_ms
    assert backoff.delay_ms(1000, lease_id=1, offset=1) == last_ms


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("exponential(1s,1.099,5min)", "the factor from 1.1 to 100"),
        ("exponential(1s,100.001,5min)", "the factor from 1.1 to 100"),
        ("12h,43200001", "longer than 12h"),
    ],
)
def test_a_backoff_beyond_its_limits_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        parse_backoff("retry_backoff", text)


def test_a_message_that_was_never_received_waits_like_one_received_once() -> None:
    exponential = ExponentialBackoff(base_ms=100, jitter=0)

    assert FixedBackoff((5, 10)).delay_ms(0, lease_id=1, offset=1) == 5
    assert exponential.delay_ms(0, lease_id=1, offset=1) == 100


def test_the_last_delay_of_a_list_holds_for_all_further_receives() -> None:
    backoff = FixedBackoff((0, 10, 60))

    delays = [backoff.delay_ms(count, lease_id=1, offset=1) for count in range(1, 6)]

    assert delays == [0, 10, 60, 60, 60]
    assert backoff.is_equal_for_all


def test_exponential_delays_grow_up_to_their_cap() -> None:
    backoff = ExponentialBackoff(base_ms=100, factor=3, cap_ms=2000, jitter=0)

    delays = [backoff.delay_ms(count, lease_id=1, offset=1) for count in (1, 2, 3, 4, 1000)]

    assert delays == [100, 300, 900, 2000, 2000]
    assert backoff.is_equal_for_all


def test_an_exponential_delay_doubles_up_to_the_longest_visibility_timeout_by_default() -> None:
    backoff = ExponentialBackoff(base_ms=1000)
    plain = ExponentialBackoff(base_ms=1000, jitter=0)

    delays = [plain.delay_ms(count, lease_id=1, offset=1) for count in (1, 2, 3, 1000)]

    assert delays == [1000, 2000, 4000, 43_200_000]
    shares = [backoff.delay_ms(3, lease_id=1, offset=offset) / 4000 for offset in range(1000)]
    assert 0.8 <= min(shares) < 0.81
    assert 0.99 < max(shares) <= 1
    assert not backoff.is_equal_for_all


@pytest.mark.parametrize(("factor", "delay_ms"), [(1, 100), (1.5, 2000)])
def test_the_delay_of_a_message_that_was_received_for_years_takes_no_time_to_compute(
    factor: float, delay_ms: int
) -> None:
    backoff = ExponentialBackoff(base_ms=100, factor=factor, cap_ms=2000, jitter=0)

    assert backoff.delay_ms(10**12, lease_id=1, offset=1) == delay_ms


@given(st.integers(1, 50), st.integers(1, 10**9), st.integers(0, 10**12))
def test_jitter_follows_from_the_lease_and_the_offset(
    count: int, lease_id: int, offset: int
) -> None:
    backoff = ExponentialBackoff(base_ms=1000, cap_ms=60_000, jitter=0.5)
    full = ExponentialBackoff(base_ms=1000, cap_ms=60_000, jitter=0)

    delay_ms = backoff.delay_ms(count, lease_id=lease_id, offset=offset)

    assert delay_ms == backoff.delay_ms(count, lease_id=lease_id, offset=offset)
    whole = full.delay_ms(count, lease_id=lease_id, offset=offset)
    assert whole // 2 <= delay_ms <= whole
    assert not backoff.is_equal_for_all


def test_jitter_spreads_the_delays_of_one_batch() -> None:
    backoff = ExponentialBackoff(base_ms=1000, jitter=1)

    delays = {backoff.delay_ms(1, lease_id=5, offset=offset) for offset in range(100)}

    assert len(delays) > 90
    assert min(delays) < 100
    assert max(delays) > 900


@pytest.mark.parametrize(
    "settings",
    [
        {"base_ms": -1},
        {"base_ms": 1, "factor": 0.5},
        {"base_ms": 10, "cap_ms": 9},
        {"base_ms": 1, "jitter": 1.5},
        {"base_ms": 1, "jitter": -0.1},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidConfigError):
        ExponentialBackoff(**settings)  # type: ignore[arg-type]


def test_a_rule_at_its_limits_is_accepted() -> None:
    nothing = ExponentialBackoff(base_ms=0, factor=1, cap_ms=0, jitter=1)

    assert [nothing.delay_ms(count, lease_id=1, offset=1) for count in (1, 5)] == [0, 0]


@pytest.mark.parametrize("delays", [(), (5, -1)])
def test_a_list_of_delays_that_makes_no_sense_is_refused(delays: tuple[int, ...]) -> None:
    with pytest.raises(InvalidConfigError):
        FixedBackoff(delays)
