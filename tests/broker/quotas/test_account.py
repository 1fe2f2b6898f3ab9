"""Account of a principal: rates with debt, shares of the controller, and reports."""

from random import Random

import pytest

from tidelog.broker.quotas.account import Account
from tidelog.wire.config.quota_rates import NO_THROTTLE, QuotaRate

PRODUCE = (QuotaRate.PRODUCE_BYTES,)


def account(**quotas: int) -> Account:
    """Return the account of a principal with quotas, at one of two brokers."""
    return Account("user:alice", quotas, broker_count=2, now_ms=0)


def test_without_quotas_nothing_is_throttled() -> None:
    alice = account()

    alice.charge(QuotaRate.PRODUCE_BYTES, 10**12)

    assert alice.throttle(now_ms=0) == NO_THROTTLE
    assert not alice.has_quotas


def test_a_broker_without_an_answer_uses_its_even_part_of_the_limit() -> None:
    alice = account(produce_bytes_per_s=2000)
    alice.charge(QuotaRate.PRODUCE_BYTES, 3000)  # 1,000 a second here, of which one second is there

    throttle = alice.throttle(now_ms=0)

    assert throttle.rate == QuotaRate.PRODUCE_BYTES
    assert 2000 <= throttle.ms <= 2001
    assert alice.throttle((QuotaRate.FETCH_BYTES,), now_ms=0) == NO_THROTTLE


def test_a_share_holds_until_its_lease_ends() -> None:
    alice = account(produce_bytes_per_s=2000)

    alice.take_share([1800, 0, 0, 0], stored_bytes=5, until_ms=3000)

    assert alice.rate_per_s(QuotaRate.PRODUCE_BYTES, now_ms=2999) == 1800
    assert alice.rate_per_s(QuotaRate.PRODUCE_BYTES, now_ms=3000) == 1000


def test_a_share_is_never_above_the_limit_after_that_was_lowered() -> None:
    alice = account(produce_bytes_per_s=2000)
    alice.take_share([1800, 0, 0, 0], stored_bytes=0, until_ms=3000)

    alice.configure({"produce_bytes_per_s": 100}, broker_count=2, now_ms=10)

    assert alice.rate_per_s(QuotaRate.PRODUCE_BYTES, now_ms=20) == 100


def test_busy_time_and_connections_are_quotas_of_each_broker() -> None:
    alice = account(busy_ms_per_s=100, connections_max=3)

    assert alice.rate_per_s(QuotaRate.BUSY_MS, now_ms=0) == 100
    alice.connection_count = 2
    assert alice.has_connection_room
    alice.connection_count = 3
    assert not alice.has_connection_room


def test_a_throttled_principal_reports_more_demand_than_use() -> None:
    alice = account(requests_per_s=100)
    alice.charge(QuotaRate.REQUESTS, 60)
    alice.throttle(now_ms=1000)
    quiet = alice.report(now_ms=1000)
    alice.charge(QuotaRate.REQUESTS, 200)
    alice.throttle(now_ms=1500)
    busy = alice.report(now_ms=2000)

    assert (quiet.rates[2], quiet.demands[2], quiet.throttled_ms) == (60, 75, 0)
    assert busy.rates[2] == 200
    assert busy.demands[2] == 400
    assert busy.throttled_ms > 0


def test_a_long_debt_is_in_each_report_until_it_is_paid() -> None:
    alice = account(produce_bytes_per_s=2000)
    alice.charge(QuotaRate.PRODUCE_BYTES, 4500)  # 3.5 seconds, of 1,000 bytes each
    alice.throttle(now_ms=0)

    reported = [alice.report(now_ms=ms).throttled_ms for ms in (1000, 2000, 3000, 4000, 5000)]

    assert reported == pytest.approx([1000, 1000, 1000, 500, 0], abs=2)


def test_throttled_time_is_counted_once_for_many_notices() -> None:
    alice = account(requests_per_s=2)
    alice.charge(QuotaRate.REQUESTS, 3)

    for now_ms in (0, 100, 200, 300):
        alice.throttle(now_ms=now_ms)

    assert 1900 <= sum(alice.take_throttled_ms().values()) <= 2100


class NaiveBucket:
    """A rate with debt, a millisecond at a time."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.left = rate

    def run(self, ms: int) -> None:
        for _ in range(ms):
            self.left = min(self.rate, self.left + self.rate / 1000)


@pytest.mark.parametrize("seed", range(20))
def test_an_account_equals_naive_buckets_in_random_runs(seed: int) -> None:
    random = Random(seed)
    limits = {"produce_bytes_per_s": 1000, "fetch_bytes_per_s": 500, "requests_per_s": 20}
    alice = Account("user:alice", limits, broker_count=1, now_ms=0)
    naive = {
        QuotaRate.PRODUCE_BYTES: NaiveBucket(1000),
        QuotaRate.FETCH_BYTES: NaiveBucket(500),
        QuotaRate.REQUESTS: NaiveBucket(20),
    }
    now_ms = 0
    for _ in range(300):
        rate = random.choice(list(naive))
        wait_ms = alice.throttle((rate,), now_ms=now_ms).ms
        left = naive[rate].left
        if abs(left) > 1e-6 * naive[rate].rate:
            assert (wait_ms == 0) == (left > 0)
        if wait_ms:
            assert abs(wait_ms - (-left / naive[rate].rate * 1000)) <= 2
        else:
            amount = random.randrange(1, 3 * int(naive[rate].rate))
            alice.charge(rate, amount)
            naive[rate].left -= amount
        passed_ms = random.choice((0, 1, 10, 300, wait_ms))
        now_ms += passed_ms
        for bucket in naive.values():
            bucket.run(passed_ms)
