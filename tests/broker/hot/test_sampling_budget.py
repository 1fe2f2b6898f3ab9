"""Tests of the budget of sampling: the cost is bounded and the choice is fair."""

from random import Random

import pytest

from tests.broker.broker_requests import batch_of
from tidelog.broker.hot.sampling_budget import CORE_SHARE, COST_MAX_US, SamplingBudget, cost_us
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import Columns, encode_batch, header_of


def budget_of(seed: int = 1) -> SamplingBudget:
    return SamplingBudget(Random(seed).random, 0.0)


def test_all_batches_are_drawn_while_the_budget_allows_it() -> None:
    budget = budget_of()

    drawn = [budget.draw(20.0, second / 100) for second in range(3_000)]

    assert drawn == [1.0] * 3_000


@pytest.mark.parametrize("cost", [20.0, 300.0, 2_000.0])
@pytest.mark.parametrize("batches_per_s", [100, 2_000, 10_000])
def test_the_cost_stays_below_its_share_of_a_core(cost: float, batches_per_s: int) -> None:
    budget = budget_of()
    seconds = 20

    drawn = [budget.draw(cost, n / batches_per_s) for n in range(seconds * batches_per_s)]

    burst_us = 2 * CORE_SHARE * 1e6 + cost
    assert budget.spent_us <= seconds * CORE_SHARE * 1e6 + burst_us
    assert any(drawn)


def test_estimates_are_fair_under_overload() -> None:
    estimates: list[float] = []
    for seed in range(20):
        budget = budget_of(seed)
        drawn = [budget.draw(200.0, n / 2_000) for n in range(40_000)]
        estimates.append(sum(1 / probability for probability in drawn if probability))

    assert sum(estimates) / len(estimates) == pytest.approx(40_000, rel=0.05)


def test_a_burst_after_a_quiet_time_costs_no_more_than_two_seconds_of_the_budget() -> None:
    budget = budget_of()
    budget.draw(20.0, 0.0)
    before = budget.spent_us

    for n in range(1_000):
        budget.draw(500.0, 100 + n / 10_000)

    assert budget.spent_us - before <= 2.2 * CORE_SHARE * 1e6 + 500


def test_a_batch_that_would_delay_others_is_never_drawn() -> None:
    budget = budget_of()

    assert budget.draw(COST_MAX_US + 1, 0.0) == 0
    assert budget.draw(COST_MAX_US, 0.0) > 0


def test_more_records_and_compression_cost_more() -> None:
    few = header_of(batch_of(b"a"))
    many = header_of(batch_of(*[b"a"] * 100))
    columns = Columns(100, values=[b"a" * 1_000] * 100)
    packed = header_of(encode_batch(columns, first_timestamp_ms=1, codec=Codec.LZ4))

    assert cost_us(few) < cost_us(many) < cost_us(packed)
