"""One partition on four brokers: nothing acknowledged is lost or different (I35 to I60)."""

from collections.abc import Iterable

import pytest

from tests.simulation.isr.aimed_faults import replicate_aimed
from tests.simulation.mutations.isr import MUTATIONS
from tests.simulation.mutations.mutation import Mutation

SEEDS_OF_A_BUG = 480
FIRST_SEEDS = {
    "high-watermark-before-truncation": 90,
    "settled-without-another-partition-epoch": 110,
}
"""Where to begin with those that only one run in a hundred catches."""


def replicate_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        replicate_aimed(seed)


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


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_is_found(mutation: Mutation) -> None:
    first = FIRST_SEEDS.get(mutation.name, 0)

    with mutation.applied(), pytest.raises(AssertionError):
        replicate_all(range(first, first + SEEDS_OF_A_BUG))
