"""Random runs of transactions; `make swarm KIND=transactions` runs many more."""

from collections import Counter

from tests.simulation.transactions.runs import run_transactions

SEED_COUNT = 2


def test_each_committed_transaction_is_complete_and_exists_once() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEED_COUNT):
        counts += run_transactions(seed)

    assert counts["committed"] > 20
    assert counts["staged_records_lost"] == 0
