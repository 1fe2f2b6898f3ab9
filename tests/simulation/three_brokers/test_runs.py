"""Tests with random runs of three brokers.

`tests/simulation/cluster` runs longer and harder; these few are about replication alone.
"""

from collections import Counter

import pytest

from tests.simulation.three_brokers.runs import run_three_brokers

SEED_COUNT = 2
SEEDS = range(12, 37)
"""Each run reaches random states, and runs stop when all are reached: at seed 13."""


@pytest.mark.invariant("I2", "I35")
def test_no_acknowledged_record_is_lost_or_duplicated() -> None:
    counts: Counter[str] = Counter()
    for run_count, seed in enumerate(SEEDS, 1):
        counts += run_three_brokers(seed)
        if run_count >= SEED_COUNT and counts["replica_truncated"]:
            break

    assert counts["acknowledged"] > 500
    assert counts["replica_truncated"] > 0
    assert counts["in_sync_replicas_changed"] > 5
    assert counts["replica_append_failed"] == 0
