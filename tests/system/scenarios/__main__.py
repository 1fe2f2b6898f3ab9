"""Scenarios in which other brokers lost acknowledged records: `make scenarios`."""

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

import trio

from tests.system.scenarios.scenarios import SCENARIOS
from tests.system.scenarios.trial import run


def main() -> int:
    """Run the command line; return the exit status."""
    arguments = parse_arguments(sys.argv[1:])
    # The library's clients warn of the faults that this run injects.
    logging.getLogger("tidelog").addHandler(logging.NullHandler())
    _say("| scenario | records were lost in | acknowledged | lost | at another offset | doubled |")
    _say("|---|---|---:|---:|---:|---:|")
    is_right = True
    for number, scenario in enumerate(SCENARIOS):
        if arguments.only in {None, number + 1}:
            with tempfile.TemporaryDirectory(prefix="tidelog-scenario-") as made:
                random = Random(f"{arguments.seed} {number}")
                outcome = trio.run(run, scenario, Path(made), random)
            is_right &= outcome.is_right
            _say(outcome.line())
    return 0 if is_right else 1


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a command line, or exit with its errors."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.scenarios", description=__doc__)
    parser.add_argument("--only", type=int, help="number of one scenario, from 1 on")
    parser.add_argument("--seed", default="1", help="seed of the faults, not of a whole run")
    return parser.parse_args(words)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
