"""Histories of real processes: `make history SECONDS=60`, or the check of a kept history."""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import trio

from tests.simulation.checkers.history import HistoryChecker
from tests.system.histories.chaos import Fault, FaultPlan, run_chaos
from tests.system.histories.examination import examine
from tests.system.histories.mutated_broker import mutated_program
from tests.system.histories.recorder import Recorder, acknowledged_count, load_events, operations_of
from tests.system.integration.processes import TIDELOG


def main() -> int:
    """Run the command line; return the exit status."""
    arguments = parse_arguments(sys.argv[1:])
    if arguments.check is not None:
        return _check(arguments.check)
    program = TIDELOG if arguments.mutation is None else mutated_program(arguments.mutation)
    fault_plan = FaultPlan(arguments.seconds, Random(arguments.seed), program)
    with tempfile.TemporaryDirectory(prefix="tidelog-history-") as made:
        file = arguments.keep or Path(made, "history.jsonl")
        with file.open("wb", buffering=0) as stream:
            trio.run(run_chaos, fault_plan, Path(made), Recorder(trio.current_time, stream.write))
        _say(f"faults: {_described(fault_plan.counts)}")
        return _check(file)


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a command line, or exit with its errors."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.histories", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds with faults")
    parser.add_argument("--seed", default="1", help="seed of the faults")
    parser.add_argument("--mutation", metavar="NAME", help="run a broker with this mutation")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="file for the history")
    parser.add_argument("--check", type=Path, metavar="FILE", help="only check this history")
    return parser.parse_args(words)


def _check(file: Path) -> int:
    operations = operations_of(load_events(file))
    problems, _ = examine(operations)
    for problem in problems:
        _say(f"WRONG: {problem}")
    outcomes = Counter(operation.outcome.value for operation in operations)
    lag_s = max(HistoryChecker(operations).realtime_lags().values(), default=0)
    _say(
        f"{len(operations)} operations ({outcomes['ok']} ok, {outcomes['unknown']} unknown),"
        f" {acknowledged_count(operations)} records acknowledged, {len(problems)} errors;"
        f" a record was read {lag_s:.1f} s after its acknowledgement at the latest"
    )
    return 1 if problems else 0


def _described(counts: Counter[Fault]) -> str:
    return ", ".join(f"{count} {fault.value}" for fault, count in counts.most_common())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
