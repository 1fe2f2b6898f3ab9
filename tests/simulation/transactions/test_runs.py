"""Random runs of transactions; `make swarm KIND=transactions` does many more."""

from collections import Counter

from tests.simulation.transactions.runs import run_transactions

SEED_COUNT = 2


def test_each_committed_transaction_is_there_once_and_whole_and_nothing_else_is() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEED_COUNT):
        counts += run_transactions(seed)

    assert counts["committed"] > 20
    assert counts["staged_records_lost"] == 0
