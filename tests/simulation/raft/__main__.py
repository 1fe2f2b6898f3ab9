"""The command line of the simulator of Raft.

python -m tests.simulation.raft life SEED [--mutant NAME]    one life, with all that happens in it
python -m tests.simulation.raft life --plan FILE
python -m tests.simulation.raft swarm --seeds N [--first K]  many lives, on all cores
python -m tests.simulation.raft mutants [NAME ...]           how soon planted bugs are caught
python -m tests.simulation.raft rewrite                      what scenarios say, anew
"""

import argparse
import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter

import msgspec

from tests.coordinator.raft.stage import perform
from tests.paths import ROOT
from tests.simulation.raft.mutants import MUTANTS, find_mutant
from tests.simulation.raft.plans import Plan, draw_plan
from tests.simulation.raft.run import LifeReport, live
from tests.simulation.raft.shrink import shrink
from tests.simulation.raft.swarm import SwarmReport, live_plan, live_seeds, swarm

_LIVES_FOR_ALL_PROBES = 1000
"""A swarm of so many lives must have seen every probe."""

_SCENARIOS = ROOT / "tests" / "coordinator" / "raft" / "scenarios"


def main() -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.raft")
    commands = parser.add_subparsers(dest="command", required=True)
    life = commands.add_parser("life", help="live one life and show it")
    life.add_argument("seed", type=int, nargs="?", default=0)
    life.add_argument("--plan", type=Path)
    life.add_argument("--mutant")
    many = commands.add_parser("swarm", help="live many lives")
    many.add_argument("--seeds", type=int, default=10_000)
    many.add_argument("--first", type=int, default=0)
    mutants = commands.add_parser("mutants", help="plant bugs and see how soon they are caught")
    mutants.add_argument("names", nargs="*", metavar="NAME")
    mutants.add_argument("--seeds", type=int, default=2000)
    mutants.add_argument("--shrink", action="store_true", help="make the plans of failures small")
    commands.add_parser("rewrite", help="write anew what the commands of scenarios say")
    arguments = parser.parse_args()
    if arguments.command == "life":
        return _life(arguments)
    if arguments.command == "swarm":
        return _swarm(arguments)
    return _mutants(arguments) if arguments.command == "mutants" else _rewrite()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _life(arguments: argparse.Namespace) -> int:
    if arguments.plan is not None:
        plan = msgspec.json.decode(arguments.plan.read_bytes(), type=Plan)
    else:
        plan = draw_plan(arguments.seed)
    with find_mutant(arguments.mutant).planted() if arguments.mutant else nullcontext():
        report = live(plan, _say)
    _say(report.problem or "all promises were kept")
    return 1 if report.checker else 0


def _swarm(arguments: argparse.Namespace) -> int:
    def show_progress(life_count: int) -> None:
        if life_count % 1000 == 0:
            _say(f"{life_count} lives")

    began_at = perf_counter()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    report = swarm(seeds, os.cpu_count() or 1, show_progress)
    _say(_describe(report, perf_counter() - began_at))
    if report.failure is not None:
        _show_failure(report.failure)
        return 1
    return 1 if report.missed_probes and report.life_count >= _LIVES_FOR_ALL_PROBES else 0


def _describe(report: SwarmReport, wall_s: float) -> str:
    simulated_s = report.simulated_ms / 1000
    committed = report.committed_count / report.life_count
    lines = [
        f"{report.life_count} lives, {simulated_s:.0f} simulated seconds in {wall_s:.0f} s",
        f"{simulated_s / report.cpu_s:.0f} times real time on each core",
        f"{report.event_count / report.cpu_s:.0f} events per second on each core",
        f"{committed:.0f} entries committed in a life",
    ]
    lines += [
        f"{count:>6} lives: {probe}" for probe, count in sorted(report.lives_by_probe.items())
    ]
    lines += [f"  none of the lives: {probe}" for probe in report.missed_probes]
    return "\n".join(lines)


def _show_failure(failure: LifeReport, mutant: str | None = None) -> None:
    _say(f"\n{failure.plan.seed} at {failure.at_ms:.0f} ms: {failure.problem}")
    _say(f"making its plan of {len(failure.plan.faults)} faults smaller ...")
    small = shrink(failure, partial(live_plan, mutant=mutant))
    path = Path("build") / f"raft-{small.checker}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(small.plan)))
    _say(f"{len(small.plan.faults)} faults are left: {small.problem}")
    _say(f"replay it: python -m tests.simulation.raft life --plan {path}")


def _mutants(arguments: argparse.Namespace) -> int:
    missed: list[str] = []
    _say("| planted bug | seeds until caught | caught by | what is wrong |")
    _say("|---|---|---|---|")
    for name in arguments.names or [mutant.name for mutant in MUTANTS]:
        about = find_mutant(name).about
        report = live_seeds(range(arguments.seeds), name)
        if report.failure is None:
            missed.append(name)
            _say(f"| {name} | **not in {arguments.seeds}** | | {about} |")
            continue
        _say(f"| {name} | {report.life_count} | {report.failure.checker} | {about} |")
        if arguments.shrink:
            _show_failure(report.failure, name)
    if missed:
        _say(f"not caught: {', '.join(missed)}")
    return 1 if missed else 0


def _rewrite() -> int:
    for path in sorted(_SCENARIOS.glob("*.txt")):
        told = path.read_text(encoding="utf-8")
        performed = perform(told)
        if performed != told:
            path.write_text(performed, encoding="utf-8")
            _say(f"{path.name} says something else now")
    return 0


if __name__ == "__main__":
    sys.exit(main())
