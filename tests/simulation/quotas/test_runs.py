"""Random runs of quotas; `make swarm KIND=quotas` runs many more."""

from tests.simulation.quotas.runs import ROUNDS, run_quotas

SEED = 1


def test_shares_hold_and_no_principal_starves_over_changes_of_the_controller() -> None:
    counts = run_quotas(SEED)

    assert counts["checked"] == counts["faults"] == ROUNDS
    assert min(counts["flood"], counts["quiet"]) > 100
