"""Random runs of an encrypted topic; `make swarm KIND=encryption` runs many more."""

from collections import Counter

from tests.simulation.encryption.runs import run_encryption

SEEDS = range(4)


def test_wrong_and_missing_keys_lose_nothing_and_are_no_damage() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        counts += run_encryption(seed)

    assert counts["acknowledged"] > 20
    assert counts["not acknowledged"] > 0
    assert counts["rotated"] > 0
    assert counts["data_keys_unavailable"] > 0
    assert counts["data_keys_available"] > 0
