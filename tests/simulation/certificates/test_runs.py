"""Random runs of certificates; `make swarm KIND=certificates` runs many more."""

from tests.simulation.certificates.runs import run_certificates

SEED = 1


def test_certificates_that_expire_and_are_swapped_stop_and_lose_nothing() -> None:
    counts = run_certificates(SEED)

    assert counts["acknowledged"] > 100
    assert counts["certificate_reloaded"] > 6
    assert counts["certificate_expires"] > 0
