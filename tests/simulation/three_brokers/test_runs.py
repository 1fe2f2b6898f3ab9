"""In random lives of three brokers nothing acknowledged is lost, and bugs that lose it are caught.

`tests/simulation/cluster` lives longer and harder; these few are about replication alone.
"""

from collections import Counter

import pytest
import trio

from tests.simulation.mutations.mutant import Mutant
from tests.simulation.three_brokers.mutants import MUTANTS
from tests.simulation.three_brokers.runs import live_and_suffer

SEED_COUNT = 5
SEEDS_MAX = 25
"""What a life comes upon is chance: as many are lived as it takes, up to so many."""


def live_all() -> None:
    for seed in range(SEEDS_MAX):
        live_and_suffer(seed)


@pytest.mark.invariant("I2", "I35")
def test_nothing_acknowledged_is_lost_or_there_twice() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS_MAX):
        counts += live_and_suffer(seed)
        if seed + 1 >= SEED_COUNT and counts["replica_truncated"]:
            break

    assert counts["acknowledged"] > 500
    assert counts["replica_truncated"] > 0
    assert counts["in_sync_replicas_changed"] > 5
    assert counts["replica_append_failed"] == 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant, defects: list[str]) -> None:
    with mutant.planted(), pytest.raises(BaseException) as caught:  # noqa: PT011
        live_all()

    assert isinstance(caught.value, AssertionError | trio.TooSlowError)
    defects.clear()  # Brokers notice some of it themselves.
