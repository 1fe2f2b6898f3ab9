"""Many random lives of a cluster's metadata: `python -m tests.simulation.metadata.swarm [SEEDS]`.

Prints the seeds that failed, and what the planted bugs took until they were caught.
"""

import sys
from collections.abc import Callable

from tests.simulation.metadata.moves import drawn_moves, live
from tests.simulation.metadata.mutants import MUTANTS
from tests.simulation.metadata.replicas import replicate

SEEDS_OF_A_BUG = 300


def first_failure(act: Callable[[int], object], seeds: range) -> tuple[int, str] | None:
    """Return the first seed that fails and why, `None` when none does."""
    for seed in seeds:
        try:
            act(seed)
        except AssertionError as error:
            return seed, str(error).splitlines()[0] if str(error) else "an assertion"
    return None


def main(seed_count: int) -> int:
    """Live, and say what came of it; return the exit code."""
    failures = 0
    acts: dict[str, Callable[[int], object]] = {
        "lives": lambda seed: live(drawn_moves(seed)),
        "replication": replicate,
    }
    for name, act in acts.items():
        failure = first_failure(act, range(seed_count))
        failures += failure is not None
        sys.stdout.write(f"{name}: {seed_count} seeds, {failure or 'all clean'}\n")
    for mutant in MUTANTS:
        with mutant.planted():
            caught = {name: first_failure(act, range(SEEDS_OF_A_BUG)) for name, act in acts.items()}
        texts = [
            f"{name} {'-' if failure is None else failure[0] + 1}"
            for name, failure in caught.items()
        ]
        failures += all(failure is None for failure in caught.values())
        sys.stdout.write(f"{mutant.name}: caught after seeds: {', '.join(texts)}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
