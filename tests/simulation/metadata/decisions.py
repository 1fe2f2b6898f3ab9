"""Runs of metadata: the decisions of a cluster, and replication under them."""

from tests.simulation.metadata.moves import drawn_moves, run
from tests.simulation.metadata.replicas import replicate


def decide_and_replicate(seed: int) -> dict[str, int]:
    """Execute both runs of a seed.

    Raises:
        AssertionError: A promise was broken.
    """
    moves = drawn_moves(seed)
    run(moves)
    replicate(seed)
    return {"moves": len(moves)}
