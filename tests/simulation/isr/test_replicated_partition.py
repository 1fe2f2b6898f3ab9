"""One partition on four brokers: nothing acknowledged is lost or different (I35 to I60)."""

import pytest

from tests.simulation.isr.aimed_faults import replicate_aimed


@pytest.mark.invariant("I35", "I59", "I62")
def test_in_random_runs_nothing_acknowledged_is_lost_and_nothing_else_is_shown() -> None:
    counts: dict[str, int] = {}
    for seed in range(100):
        for name, count in replicate_aimed(seed).items():
            counts[name] = counts.get(name, 0) + count

    assert counts.keys() == {
        "acknowledged",
        "dropped",
        "in sync changed",
        "repaired",
        "refused",
        "rotten",
        "truncated",
        "without the dead",
    }
