"""`python -m tests.fuzz`: hostile peers against three brokers, which restart after each block.

Strangers and a proven node that is no member send mutated requests of all APIs. An honest client
produces and consumes meanwhile. After each block all brokers are killed and started again, and
every acknowledged record must be there. At the end a hostile broker answers a client.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import trio

from tests.fuzz.hostile_broker import deceive_clients
from tests.fuzz.hostile_peers import Pace, attack


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Return the arguments in these words."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of hostile requests")
    parser.add_argument("--block", type=float, default=60.0, help="seconds between two restarts")
    parser.add_argument("--pace", type=float, default=200.0, help="inputs per second at first")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(words)


def main() -> int:
    """Execute the command line; return the exit code."""
    arguments = parse_arguments(sys.argv[1:])
    pace = Pace(arguments.seconds, arguments.block, arguments.pace)
    with tempfile.TemporaryDirectory(prefix="tidelog-fuzz-") as directory:
        os.environ["XDG_CONFIG_HOME"] = directory  # The secret is not that of the user.
        course = trio.run(attack, Path(directory), arguments.seed, pace)
    problems = [*course.problems, *course.objections()]
    problems += trio.run(deceive_clients, arguments.seed, arguments.seconds / 10)
    sys.stdout.write(f"{course.summary()}\n{course.answers.most_common()}\n")
    for problem in problems:
        sys.stdout.write(f"PROBLEM: {problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
