"""In random runs transactions are there once and whole; mutations that break that are caught."""

from collections import Counter

import pytest
import trio

from tests.simulation.checkers.book import ViolationError
from tests.simulation.mutations.mutation import Mutation
from tests.simulation.mutations.transactions import MUTATIONS
from tests.simulation.transactions.runs import run_transactions

SEED_COUNT = 2
SEEDS_MAX = 20
"""What a run comes upon is chance: as many are done as it takes, up to so many."""
FIRST_SEEDS = {"transaction-appended-again": 4}
"""Where to begin, so that it does not take long."""


def live_all(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_MAX):
        run_transactions(seed)


def test_each_committed_batch_is_there_once_and_whole_and_nothing_else_is() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEED_COUNT):
        counts += run_transactions(seed)

    assert counts["committed"] > 20
    assert counts["staged_records_lost"] == 0


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_is_found(mutation: Mutation, defects: list[str]) -> None:
    first = FIRST_SEEDS.get(mutation.name, 0)
    with mutation.applied(), pytest.raises(BaseException) as caught:  # noqa: PT011
        live_all(first)

    assert isinstance(caught.value, AssertionError | ViolationError | trio.TooSlowError)
    defects.clear()  # Brokers notice some of it themselves.
