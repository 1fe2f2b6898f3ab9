"""Many lives of groups: `python -m tests.simulation.groups.swarm --seeds 1000 [--first 0]`.

With `--mutants`, bugs are planted instead, and the lives counted until each is caught.
"""

import argparse
import sys
import time

import pytest

from tests.simulation.groups.chaos import live, ping_pong, quiet
from tests.simulation.groups.mutants import MUTANTS


def main() -> int:
    """Live lives, print what went wrong, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--mutants", action="store_true")
    arguments = parser.parse_args()
    if arguments.mutants:
        return _catch_mutants(range(arguments.first, arguments.first + arguments.seeds))
    began = time.perf_counter()
    failed_count = targets = moves = fenced = accepted = refused = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for life in (live, ping_pong):
            try:
                checks = life(seed).checks
            except AssertionError as error:
                failed_count += 1
                sys.stdout.write(f"{life.__name__}({seed}): {error}\n")
            else:
                targets += checks.target_count
                moves += checks.moved_count
                fenced += checks.fenced_count
                accepted += checks.accepted_count
                refused += checks.refused_count
    sys.stdout.write(
        f"{2 * arguments.seeds} lives in {time.perf_counter() - began:.0f} s, {failed_count}"
        f" failed: {targets} targets, {moves} moves, {fenced} members fenced, {accepted} commits"
        f" accepted, {refused} refused\n"
    )
    return 1 if failed_count else 0


def _catch_mutants(seeds: range) -> int:
    missed_count = 0
    for mutant in MUTANTS:
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(patch)
            caught = next(filter(None, (_objection(seed) for seed in seeds)), None)
        missed_count += caught is None
        sys.stdout.write(f"{mutant.name}: {caught or 'not caught'}\n")
    return 1 if missed_count else 0


def _objection(seed: int) -> str | None:
    for life in (quiet, ping_pong, live):
        try:
            life(seed)
        except AssertionError as error:
            return f"{life.__name__}({seed}): {str(error)[:60] or 'an assertion'}"
    return None


if __name__ == "__main__":
    sys.exit(main())
