"""The random lives are worth something: they catch bugs that are planted on purpose."""

import pytest

from tests.simulation.metadata.moves import drawn_moves, live
from tests.simulation.metadata.mutants import MUTANTS
from tests.simulation.metadata.replicas import replicate
from tests.simulation.mutations.mutant import Mutant


def live_and_replicate(seeds: int) -> None:
    for seed in range(seeds):
        live(drawn_moves(seed))
        replicate(seed)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    with mutant.planted(), pytest.raises(AssertionError):
        live_and_replicate(150)


def test_without_a_planted_bug_nothing_is_caught() -> None:
    live_and_replicate(25)
