"""Random runs of access; `make swarm KIND=access` runs many more."""

from tests.simulation.access.runs import WORK, run_access

SEED = 3


def test_nothing_is_acknowledged_or_delivered_after_an_answered_revocation() -> None:
    counts = run_access(SEED)

    assert counts["revocations"] > 5
    assert min(counts[each] for each in (*WORK, "denied")) > 3
