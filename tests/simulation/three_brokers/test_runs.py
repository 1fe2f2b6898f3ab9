"""In random runs of three brokers nothing acknowledged is lost, and bugs that lose it are caught.

`tests/simulation/cluster` runs longer and harder; these few are about replication alone.
"""

from collections import Counter

import pytest
import trio

from tests.simulation.mutations.mutation import Mutation
from tests.simulation.mutations.three_brokers import MUTATIONS
from tests.simulation.three_brokers.runs import run_three_brokers

SEED_COUNT = 5
SEEDS_MAX = 25
"""What a run comes upon is chance: as many are done as it takes, up to so many."""


def live_all() -> None:
    for seed in range(SEEDS_MAX):
        run_three_brokers(seed)


@pytest.mark.invariant("I2", "I35")
def test_nothing_acknowledged_is_lost_or_there_twice() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS_MAX):
        counts += run_three_brokers(seed)
        if seed + 1 >= SEED_COUNT and counts["replica_truncated"]:
            break

    assert counts["acknowledged"] > 500
    assert counts["replica_truncated"] > 0
    assert counts["in_sync_replicas_changed"] > 5
    assert counts["replica_append_failed"] == 0


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_is_found(mutation: Mutation, defects: list[str]) -> None:
    with mutation.applied(), pytest.raises(BaseException) as caught:  # noqa: PT011
        live_all()

    assert isinstance(caught.value, AssertionError | trio.TooSlowError)
    defects.clear()  # Brokers notice some of it themselves.
