"""Metrics of brokers equal the events, while leaders are stopped, killed and paused."""

from collections import Counter

from tests.simulation.three_brokers.counts import run_counted

SEEDS = range(3)


def test_counts_equal_events() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        counts += run_counted(seed)

    assert counts["leader_elections_total planned"] > 0
    assert counts["leader_elections_total failover"] > 0
    assert counts["isr_changes_total shrink"] > 0
    assert counts["isr_changes_total expand"] > 0
