"""Random runs of metadata find every mutation."""

import pytest

from tests.simulation.metadata.decisions import decide_and_replicate
from tests.simulation.mutations.metadata import MUTATIONS
from tests.simulation.mutations.mutation import Mutation


def decide_all(seeds: int) -> None:
    for seed in range(seeds):
        decide_and_replicate(seed)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_is_found(mutation: Mutation) -> None:
    with mutation.applied(), pytest.raises(AssertionError):
        decide_all(150)


def test_without_a_mutation_nothing_is_found() -> None:
    decide_all(25)
