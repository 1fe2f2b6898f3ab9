"""Tests of the budget of sampling: the cost is bounded and the choice is fair."""

from random import Random

import pytest

from tests.broker.broker_requests import batch_of
from tidelog.broker.hot.sampling_budget import CORE_SHARE, COST_MAX_US, SamplingBudget, cost_us
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import Columns, encode_batch, header_of

BUDGET_US = CORE_SHARE * 1e6
"""Of a second."""


def budget_of(seed: int = 1) -> SamplingBudget:
    return SamplingBudget(Random(seed).random, 0.0)


def offer(budget: SamplingBudget, cost: float, now: float) -> float:
    """Offer one batch; return the probability with which it was hit, or 0."""
    budget.until_hit -= 1
    return 0.0 if budget.until_hit else budget.hit(cost, now)


def test_all_of_few_batches_are_hit() -> None:
    budget = budget_of()

    assert [offer(budget, 20.0, n / 5) for n in range(300)] == [1.0] * 300


@pytest.mark.parametrize(("batches_per_s", "part"), [(80, 1 / 10), (2_000, 1 / 32)])
def test_of_many_batches_a_part_is_hit_however_cheap_they_are(
    batches_per_s: int, part: float
) -> None:
    budget = budget_of()

    hits = [offer(budget, 5.0, n / batches_per_s) for n in range(60 * batches_per_s)]

    hit_count = sum(map(bool, hits[10 * batches_per_s :]))
    assert hit_count / (50 * batches_per_s) == pytest.approx(part, rel=0.2)


@pytest.mark.parametrize("cost", [20.0, 300.0, 3_000.0])
@pytest.mark.parametrize("batches_per_s", [100, 2_000, 10_000])
def test_the_cost_stays_below_its_share_of_a_core(cost: float, batches_per_s: int) -> None:
    budget, seconds = budget_of(), 30

    hits = [offer(budget, cost, n / batches_per_s) for n in range(seconds * batches_per_s)]

    assert budget.spent_us <= (seconds + 5) * BUDGET_US + cost
    assert any(hits)


def test_estimates_are_fair_under_overload() -> None:
    estimates: list[float] = []
    for seed in range(20):
        budget = budget_of(seed)
        hits = [offer(budget, 200.0, n / 2_000) for n in range(40_000)]
        estimates.append(sum(1 / probability for probability in hits if probability))

    assert sum(estimates) / len(estimates) == pytest.approx(40_000, rel=0.05)


def test_a_burst_costs_no_more_than_a_few_seconds_of_the_budget() -> None:
    budget = budget_of()
    for n in range(100):
        offer(budget, 20.0, float(n))
    before = budget.spent_us

    for n in range(10_000):
        offer(budget, 500.0, 100 + n / 10_000)

    assert budget.spent_us - before <= 6 * BUDGET_US


def test_a_load_that_ended_does_not_keep_the_next_batches_from_being_hit() -> None:
    budget = budget_of()
    for n in range(200_000):
        offer(budget, 100.0, n / 10_000)
    for second in range(20, 60, 10):
        budget.refresh(float(second))

    hits = [offer(budget, 100.0, 60.0 + n) for n in range(10)]

    assert all(probability == 1.0 for probability in hits)


def test_a_batch_that_would_delay_others_is_never_sampled() -> None:
    budget = budget_of()

    assert offer(budget, COST_MAX_US + 1, 0.0) == 0
    assert offer(budget, COST_MAX_US, 0.0) > 0


def test_more_records_and_compression_cost_more() -> None:
    few = header_of(batch_of(b"a"))
    many = header_of(batch_of(*[b"a"] * 100))
    columns = Columns(100, values=[b"a" * 1_000] * 100)
    packed = header_of(encode_batch(columns, first_timestamp_ms=1, codec=Codec.LZ4))

    assert cost_us(few) < cost_us(many) < cost_us(packed)
