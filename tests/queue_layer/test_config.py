"""Settings of a queue are checked, and delays follow from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_layer.driver import TARGET
from tidelog.queue_layer.config import ExponentialBackoff, FixedBackoff, QueueConfig
from tidelog.wire.errors import InvalidConfigError
from tidelog.wire.messages.queues import VISIBILITY_TIMEOUT_MS_MAX


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"visibility_timeout_ms": -1}, "visibility timeout"),
        ({"visibility_timeout_ms": VISIBILITY_TIMEOUT_MS_MAX + 1}, "visibility timeout"),
        ({"delivery_delay_ms": -1}, "delay"),
        ({"retention_ms": 59_999}, "at least a minute"),
        ({"max_receive_count": 0}, "at least once"),
        ({"max_in_flight": 0}, "at least one"),
        ({"priority_weights": (4, 0)}, "weight"),
        ({"priority_weights": (4, 1), "is_fifo": True}, "FIFO"),
        ({"fair_delivery": True, "is_fifo": True}, "FIFO"),
        ({"priority_weights": (4, 1), "fair_delivery": True}, "either"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    settings: dict[str, object], complaint: str
) -> None:
    with pytest.raises(InvalidConfigError, match=complaint):
        QueueConfig(**settings)  # type: ignore[arg-type]


def test_messages_do_not_die_where_there_is_no_place_for_the_dead() -> None:
    assert QueueConfig(max_receive_count=3).deliveries_max is None
    assert QueueConfig(max_receive_count=3, dead_letter_target=TARGET).deliveries_max == 3


def test_a_fifo_queue_is_always_fenced() -> None:
    assert QueueConfig(is_fifo=True).is_fenced
    assert QueueConfig(require_latest_receipt=True).is_fenced
    assert not QueueConfig().is_fenced


def test_the_last_delay_of_a_list_is_that_of_all_further_receives() -> None:
    backoff = FixedBackoff((0, 10, 60))

    delays = [backoff.delay_ms(count, lease_id=1, offset=1) for count in range(1, 6)]

    assert delays == [0, 10, 60, 60, 60]
    assert backoff.is_equal_for_all


def test_exponential_delays_grow_up_to_their_cap() -> None:
    backoff = ExponentialBackoff(base_ms=100, factor=3, cap_ms=2000, jitter=0)

    delays = [backoff.delay_ms(count, lease_id=1, offset=1) for count in (1, 2, 3, 4, 1000)]

    assert delays == [100, 300, 900, 2000, 2000]
    assert backoff.is_equal_for_all


@given(st.integers(1, 50), st.integers(1, 10**9), st.integers(0, 10**12))
def test_jitter_takes_off_a_part_that_follows_from_the_lease_and_the_offset(
    count: int, lease_id: int, offset: int
) -> None:
    backoff = ExponentialBackoff(base_ms=1000, cap_ms=60_000, jitter=0.5)
    full = ExponentialBackoff(base_ms=1000, cap_ms=60_000, jitter=0)

    delay_ms = backoff.delay_ms(count, lease_id=lease_id, offset=offset)

    assert delay_ms == backoff.delay_ms(count, lease_id=lease_id, offset=offset)
    whole = full.delay_ms(count, lease_id=lease_id, offset=offset)
    assert whole // 2 <= delay_ms <= whole
    assert not backoff.is_equal_for_all


def test_jitter_spreads_what_failed_together() -> None:
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
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidConfigError):
        ExponentialBackoff(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("delays", [(), (5, -1)])
def test_a_list_of_delays_that_makes_no_sense_is_refused(delays: tuple[int, ...]) -> None:
    with pytest.raises(InvalidConfigError):
        FixedBackoff(delays)
