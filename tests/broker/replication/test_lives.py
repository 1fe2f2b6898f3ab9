"""In random lives of three brokers nothing acknowledged is lost, and bugs that lose it are caught.

`tests/simulation/cluster` lives longer and harder; these few are about replication alone.
"""

from collections import Counter

import pytest
import trio

from tests.broker.replication.lives import live_and_suffer
from tests.broker.replication.planted import MUTANTS
from tests.simulation.mutant import Mutant

SEEDS_OF_A_BUG = 5


def live_all(seed_count: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(seed_count):
        counts += live_and_suffer(seed)
    return counts


def test_nothing_acknowledged_is_lost_or_there_twice() -> None:
    counts = live_all(5)

    assert counts["acknowledged"] > 500
    assert counts["replica_truncated"] > 0
    assert counts["in_sync_replicas_changed"] > 5
    assert counts["replica_append_failed"] == 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant, defects: list[str]) -> None:
    with mutant.planted(), pytest.raises(BaseException) as caught:  # noqa: PT011
        live_all(SEEDS_OF_A_BUG)

    assert isinstance(caught.value, AssertionError | trio.TooSlowError)
    defects.clear()  # Brokers notice some of it themselves.
