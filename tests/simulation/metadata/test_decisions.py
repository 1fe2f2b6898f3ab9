"""Random decisions about metadata; `make swarm KIND=metadata` makes many more."""

from tests.simulation.metadata.decisions import decide_and_replicate


def test_random_decisions_keep_all_promises() -> None:
    for seed in range(25):
        decide_and_replicate(seed)
