"""Shares of brokers in rates: by demand, safe while answers are lost, never above for long."""

from collections.abc import Mapping
from random import Random

import pytest

from tidelog.coordinator.security.quota_shares import LEASE_MS, QuotaShares, divide
from tidelog.coordinator.security.records import QuotaSet
from tidelog.wire.config.quota_rates import RATES
from tidelog.wire.messages.quotas import PrincipalShare, PrincipalUse

LIMIT = 9_000
QUOTAS: Mapping[str, QuotaSet] = {"user:alice": QuotaSet("user:alice", {RATES[0]: LIMIT})}
NODES = (1, 2, 3)


def use(demand: int, storage_bytes: int = 0) -> list[PrincipalUse]:
    """Return a report of a demand of bytes to produce."""
    return [PrincipalUse("user:alice", [demand, 0, 0, 0], [demand, 0, 0, 0], 0, 1, storage_bytes)]


def ask(shares: QuotaShares, node_id: int, demand: int, *, now_ms: int) -> int:
    """Report a demand; return the share of the broker."""
    answer = shares.answer(node_id, use(demand), quotas=QUOTAS, live=NODES, now_ms=now_ms)
    return answer[0].rates[0]


def test_shares_follow_demand_and_leave_a_beginning_for_idle_brokers() -> None:
    shares = divide(900, {1: 10_000, 2: 0, 3: 0}, reserved={})

    assert shares == {1: 840, 2: 30, 3: 30}
    assert divide(900, {1: 100, 2: 10_000}, reserved={3: 300})[2] == pytest.approx(500)
    assert sum(divide(900, {1: 0, 2: 0, 3: 0}, reserved={}).values()) == pytest.approx(900)


def test_a_demand_at_one_broker_gets_nearly_the_whole_limit_within_a_lease() -> None:
    shares = QuotaShares()
    last = 0.0
    for now_ms in range(0, 2 * LEASE_MS, 750):
        for node_id in (2, 3):
            ask(shares, node_id, 0, now_ms=now_ms)
        last = ask(shares, 1, 100_000, now_ms=now_ms)

    assert last >= 0.9 * LIMIT


def test_storage_is_summed_over_the_brokers() -> None:
    shares = QuotaShares()
    shares.answer(1, use(0, 700), quotas=QUOTAS, live=NODES, now_ms=0)

    answer = shares.answer(2, use(0, 50), quotas=QUOTAS, live=NODES, now_ms=10)

    assert answer == [PrincipalShare("user:alice", answer[0].rates, 750)]


def test_default_quotas_are_shared_for_each_principal_alone() -> None:
    shares = QuotaShares()
    quotas = {"default": QuotaSet("default", {RATES[2]: 300})}

    answer = shares.answer(1, use(5), quotas=quotas, live=(1,), now_ms=0)

    assert answer[0].rates == [0, 0, 300, 0]


class SimulatedBroker:
    """A broker that uses its share while its lease holds, and an even part afterwards."""

    def __init__(self) -> None:
        self.share = 0
        self.until_ms = -1

    def rate(self, now_ms: int) -> float:
        return self.share if now_ms < self.until_ms else LIMIT / len(NODES)


@pytest.mark.parametrize("seed", range(30))
def test_rates_in_force_are_above_the_limit_for_a_lease_at_most(seed: int) -> None:
    random = Random(seed)
    brokers = {node_id: SimulatedBroker() for node_id in NODES}
    shares = QuotaShares()
    demands: dict[int, int] = dict.fromkeys(NODES, 0)
    allowed = above_ms = 0.0
    step_ms = 50
    for now_ms in range(0, 120_000, step_ms):
        if random.random() < 0.01:
            demands[random.choice(NODES)] = random.choice((0, 500, 5_000, 50_000))
        if random.random() < 0.002:
            shares = QuotaShares()  # Another controller, which knows nothing.
        for node_id, broker in brokers.items():
            if random.random() < step_ms / 750:
                share = ask(shares, node_id, demands[node_id], now_ms=now_ms)
                if random.random() < 0.9:  # Else the answer is lost.
                    broker.share, broker.until_ms = share, now_ms + LEASE_MS
        total = sum(broker.rate(now_ms) for broker in brokers.values())
        assert total <= 2 * LIMIT
        allowed += total * step_ms / 1000
        above_ms = above_ms + step_ms if total > 1.001 * LIMIT else 0
        assert above_ms <= 2 * LEASE_MS
    assert allowed <= 1.15 * LIMIT * 120
