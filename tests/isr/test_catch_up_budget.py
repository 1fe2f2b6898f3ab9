"""Tests of the catch-up throttle: adding replicas stay within the rate."""

import pytest

from tidelog.isr.catch_up_budget import CatchUpBudget

RATE = 1_000_000


def spent_in(seconds: float, piece_bytes: int, rate: int = RATE) -> int:
    """Return the bytes that a greedy follower gets, in pieces."""
    budget = CatchUpBudget()
    now_ms, total = 0, 0
    while now_ms <= seconds * 1000:
        available = budget.available(rate, now_ms=now_ms)
        assert available is not None
        if available:
            # A batch of any size passes.
            count = max(piece_bytes, min(available, piece_bytes))
            budget.spend(count)
            total += count
        else:
            now_ms += budget.wait_ms(rate, now_ms=now_ms)
    return total


@pytest.mark.parametrize("piece_bytes", [100, 100_000, 1_000_000, 5_000_000])
def test_the_throttle_rate_holds_for_any_fetch_size(piece_bytes: int) -> None:
    total = spent_in(60, piece_bytes)

    assert 60 * RATE * 0.9 <= total <= 61 * RATE + piece_bytes


def test_the_burst_after_a_pause_is_half_a_second_of_the_rate() -> None:
    budget = CatchUpBudget()
    budget.available(RATE, now_ms=0)

    assert budget.available(RATE, now_ms=3_600_000) == RATE // 2


def test_without_a_rate_there_is_no_limit_and_no_debt() -> None:
    budget = CatchUpBudget()

    assert budget.available(None, now_ms=0) is None
    budget.spend(1 << 40)
    assert budget.available(None, now_ms=1) is None
    assert budget.wait_ms(None, now_ms=1) == 0
    assert budget.available(RATE, now_ms=2) == RATE // 2


def test_a_debt_delays_the_next_portion() -> None:
    budget = CatchUpBudget()
    budget.available(RATE, now_ms=0)
    budget.spend(2 * RATE)

    assert budget.available(RATE, now_ms=0) == 0
    wait_ms = budget.wait_ms(RATE, now_ms=0)
    assert wait_ms == 1601
    assert budget.available(RATE, now_ms=wait_ms - 2) == 0
    assert budget.available(RATE, now_ms=wait_ms) == 101_000


def test_a_higher_rate_holds_at_once() -> None:
    budget = CatchUpBudget()
    budget.available(RATE, now_ms=0)
    budget.spend(2 * RATE)

    assert budget.available(10 * RATE, now_ms=0) == 3 * RATE


def test_a_stopped_clock_refills_no_budget() -> None:
    budget = CatchUpBudget()
    budget.available(RATE, now_ms=5)
    budget.spend(RATE)

    assert budget.available(RATE, now_ms=5) == 0
    assert budget.available(RATE, now_ms=4) == 0


def test_a_rate_of_few_bytes_gives_single_bytes() -> None:
    budget = CatchUpBudget()

    assert budget.available(2, now_ms=0) == 1
    budget.spend(1)
    assert budget.available(2, now_ms=499) == 0
    assert budget.available(2, now_ms=500) == 1


def test_a_portion_is_at_least_a_tenth_of_a_second_of_the_rate() -> None:
    budget = CatchUpBudget()
    budget.available(RATE, now_ms=0)
    budget.spend(RATE // 2 - RATE // 10)

    assert budget.available(RATE, now_ms=0) == RATE // 10
    assert budget.wait_ms(RATE, now_ms=0) == 0
    budget.spend(1)
    assert budget.available(RATE, now_ms=0) == 0
    assert budget.wait_ms(RATE, now_ms=0) == 1
