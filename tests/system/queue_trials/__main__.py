"""Queues of three real brokers whose leaders are killed and paused: `make queue-trial`."""

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

import trio

from tests.system.queue_trials.run import Plan, run


def main() -> int:
    """Run the command line; return the exit status."""
    arguments = parse_arguments(sys.argv[1:])
    # The library's clients warn of the faults that this run injects.
    logging.getLogger("tidelog").addHandler(logging.NullHandler())
    plan = Plan(arguments.minutes * 60, Random(arguments.seed))
    with tempfile.TemporaryDirectory(prefix="tidelog-queue-trial-") as made:
        report = trio.run(run, plan, Path(made))
    for problem in report.problems:
        _say(f"WRONG: {problem}")
    for line in report.lines():
        _say(line)
    faults = ", ".join(f"{count} {what}s" for what, count in report.faults.items())
    _say(
        f"{arguments.minutes:g} minutes, seed {arguments.seed}: {faults},"
        f" {len(report.problems)} problems"
    )
    return 1 if report.problems else 0


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a command line, or exit with its errors."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.queue_trials", description=__doc__
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes with faults")
    parser.add_argument("--seed", default="1", help="seed of the faults, not of a whole run")
    return parser.parse_args(words)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
