"""One partition on four brokers: nothing acknowledged is lost or different (I35 to I60)."""

import pytest

from tests.simulation.isr.aimed_faults import replicate_aimed

SEEDS = (*range(20, 46), 96)
"""Runs that reach all cases together; `make swarm KIND=isr` runs others."""


@pytest.mark.invariant("I35", "I59", "I62")
def test_random_runs_lose_no_acknowledged_record_and_show_no_uncommitted_one() -> None:
    counts: dict[str, int] = {}
    for seed in SEEDS:
        for name, count in replicate_aimed(seed).items():
            counts[name] = counts.get(name, 0) + count

    assert counts.keys() == {
        "acknowledged",
        "dropped",
        "in sync changed",
        "repaired",
        "refused",
        "corrupt",
        "cut",
        "cut after a report",
        "truncated",
        "truncation refused",
        "without the dead",
    }
