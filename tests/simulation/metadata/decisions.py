"""The runs of metadata: what a cluster decides, and what its brokers make of that."""

from tests.simulation.metadata.moves import drawn_moves, run
from tests.simulation.metadata.replicas import replicate


def decide_and_replicate(seed: int) -> dict[str, int]:
    """Do both runs of a seed.

    Raises:
        AssertionError: A promise was broken.
    """
    moves = drawn_moves(seed)
    run(moves)
    replicate(seed)
    return {"moves": len(moves)}
