"""Real brokers, each in a network namespace, under faults: `make netns MINUTES=10`.

It needs root, or a user that may create namespaces. This process starts another one, the first
process in namespaces of its own; when that ends, all others in them end, after Ctrl-C too.
"""

import argparse
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import trio

from tests.system.histories.mutated_broker import mutated_program
from tests.system.integration.processes import TIDELOG
from tests.system.netns.namespaces import isolated, missing_here
from tests.system.netns.run import Report, RunSettings, run

_TOLD_LINES = 60


def main() -> int:
    """Run the command line; return the exit status."""
    arguments = parse_arguments(sys.argv[1:])
    if arguments.inside is not None:
        return _run(arguments, Path(arguments.inside))
    missing = missing_here()
    if missing:
        _say(f"network namespaces: skipped, for this needs {missing}")
        return 0
    with tempfile.TemporaryDirectory(prefix="tidelog-netns-") as workshop:
        own = [sys.executable, "-m", "tests.system.netns", *sys.argv[1:], "--inside", workshop]
        # A session of its own: Ctrl-C reaches this process alone, which then stops all others.
        with subprocess.Popen(isolated(own), start_new_session=True) as inside:
            try:
                return inside.wait()
            except KeyboardInterrupt:
                _say("interrupted")
                return 130
            finally:
                if inside.poll() is None:
                    _end(inside)


def _end(inside: "subprocess.Popen[bytes]") -> None:
    """Kill the first process in the namespaces, and wait until all in there have ended.

    The kernel kills the others with the first, and that one ends last. `unshare` waits for it.
    """
    children = Path(f"/proc/{inside.pid}/task/{inside.pid}/children").read_text(encoding="ascii")
    for pid in map(int, children.split() or [str(inside.pid)]):
        os.kill(pid, signal.SIGKILL)
    inside.wait()


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a command line, or exit with its errors."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.netns", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="minutes with faults")
    parser.add_argument("--brokers", type=int, default=3, help="number of brokers, at least 3")
    parser.add_argument("--seed", default="1", help="seed of the faults, not of a whole run")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="directory for data and history")
    parser.add_argument("--mutation", metavar="NAME", help="run brokers with this mutation")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _run(arguments: argparse.Namespace, workshop: Path) -> int:
    directory = arguments.keep or workshop
    directory.mkdir(parents=True, exist_ok=True)
    program = TIDELOG if arguments.mutation is None else mutated_program(arguments.mutation)
    settings = RunSettings(
        arguments.minutes * 60, arguments.seed, directory, _say, arguments.brokers, program
    )
    # The library's clients warn of the faults that this run injects.
    logging.getLogger("tidelog").addHandler(logging.NullHandler())
    report = trio.run(run, settings)
    for problem in report.problems:
        _say(f"WRONG: {problem}")
    if report.problems:
        _tell_logs(directory)
    _say(f"faults: {_described(report.counts)}")
    _say(_summary(report, arguments))
    return 1 if report.problems else 0


def _tell_logs(directory: Path) -> None:
    """Print the ends of the brokers' logs: the next run may not reproduce the failure."""
    for log in sorted(directory.glob("*/log")):
        for line in log.read_text(encoding="utf-8").splitlines()[-_TOLD_LINES:]:
            _say(f"broker {log.parent.name}: {line}")


def _summary(report: Report, arguments: argparse.Namespace) -> str:
    return (
        f"{arguments.brokers} brokers, {arguments.minutes:g} minutes, seed {arguments.seed}:"
        f" {report.counts.total()} faults, {report.acknowledged_count} records acknowledged,"
        f" {report.replica_count} replicas read, {report.accepted_count} elections with a"
        f" possible loss, {len(report.problems)} problems"
    )


def _described(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
