"""Waits between attempts double, have a bound, and differ between clients."""

from random import Random

import pytest

from tidelog.client.cluster.backoff import Backoff


def delays(failure_count: int) -> list[float]:
    backoff = Backoff(0.1, 1.0, Random(1))
    return [backoff.delay(failure_count) for _ in range(200)]


@pytest.mark.parametrize(("failure_count", "mean"), [(1, 0.1), (2, 0.2), (4, 0.8)])
def test_the_mean_wait_doubles_with_each_failure(failure_count: int, mean: float) -> None:
    found = delays(failure_count)

    assert all(0.5 * mean <= delay <= 1.5 * mean for delay in found)
    assert abs(sum(found) / len(found) - mean) < 0.1 * mean


@pytest.mark.parametrize("failure_count", [5, 100, 10**9])
def test_waits_are_bounded_however_often_it_fails(failure_count: int) -> None:
    assert all(0.5 <= delay <= 1.5 for delay in delays(failure_count))


def test_two_clients_that_fail_together_do_not_come_back_together() -> None:
    first = Backoff(0.1, 1.0, Random(1)).delay(1)
    second = Backoff(0.1, 1.0, Random(2)).delay(1)

    assert first != second


def test_without_a_failure_there_is_nothing_to_wait_for() -> None:
    with pytest.raises(AssertionError, match="nothing failed"):
        Backoff(0.1, 1.0, Random(1)).delay(0)
