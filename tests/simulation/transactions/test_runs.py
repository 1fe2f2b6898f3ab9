"""Random runs of transactions; `make swarm KIND=transactions` runs many more."""

from tests.simulation.transactions.runs import run_transactions

SEED = 5
"""A run in which replicas are truncated."""


def test_each_committed_transaction_is_complete_and_exists_once() -> None:
    counts = run_transactions(SEED)

    assert counts["committed"] > 20
    assert counts["replica_truncated"] > 0
    assert counts["staged_records_lost"] == 0
