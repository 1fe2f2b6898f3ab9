"""Random runs of processors; `make swarm KIND=processing` runs many more."""

from tests.simulation.processing.runs import run_processing

SEED = 1


def test_each_record_is_copied_once() -> None:
    counts = run_processing(SEED)

    assert counts["copied"] > 20
