"""One partition on four brokers: nothing acknowledged is lost or different (I35 to I60)."""

from collections.abc import Iterable

import pytest

from tests.simulation.isr.aimed_faults import AimedPartition
from tests.simulation.isr.mutants import MUTANTS
from tests.simulation.metadata.replicas import replicate
from tests.simulation.mutations.mutant import Mutant

SEEDS_OF_A_BUG = 480
FIRST_SEEDS = {
    "high watermark before truncation": 90,
    "settled without another partition epoch": 110,
}
"""Where to begin with those that only one life in a hundred catches."""


def live(seed: int) -> AimedPartition:
    partition = replicate(seed, kind=AimedPartition)
    assert isinstance(partition, AimedPartition)
    return partition


def live_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        live(seed)


@pytest.mark.invariant("I35", "I59", "I62")
def test_in_random_lives_nothing_acknowledged_is_lost_and_nothing_else_is_shown() -> None:
    counts: dict[str, int] = {}
    for seed in range(100):
        for name, count in live(seed).counts.items():
            counts[name] = counts.get(name, 0) + count

    assert counts.keys() == {
        "acknowledged",
        "dropped",
        "in sync changed",
        "refilled",
        "refused",
        "rotten",
        "truncated",
        "without the dead",
    }


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    first = FIRST_SEEDS.get(mutant.name, 0)

    with mutant.planted(), pytest.raises(AssertionError):
        live_all(range(first, first + SEEDS_OF_A_BUG))
