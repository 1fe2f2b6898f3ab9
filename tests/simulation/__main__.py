"""The command line of the simulator.

python -m tests.simulation sim SEED [--seconds S]     one life, with all that happens in it
python -m tests.simulation sim --plan FILE            the life of a plan
python -m tests.simulation swarm [--seeds N] [--first K] [--seconds S] [--budget MINUTES]
python -m tests.simulation mutants [NAME ...]         how soon planted bugs are caught

With `--kind compacted`, `sim` and `swarm` are about a broker that compacts its topic, with `--kind
cluster` about whole clusters, and with `--kind queues` about clusters that serve queues.
"""

import argparse
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.simulation.broker.plans import to_json
from tests.simulation.kinds import KINDS, Kind
from tests.simulation.mutations.measure import (
    SEEDS_MAX,
    Trial,
    objections,
    score,
    table_head,
    table_row,
    try_mutants,
)
from tests.simulation.report import LifeReport
from tests.simulation.shrink import ShrinkBudget
from tests.simulation.swarm import (
    LIVES_FOR_ALL_PROBES,
    Swarm,
    SwarmReport,
    SwarmSize,
    keep_failure,
)

_MUTANT_BUDGET = ShrinkBudget(lives=300, wall_s=300.0, faults_enough=3)


def main() -> int:
    """Do what the command line says; return the exit code."""
    arguments = _parse()
    if arguments.command == "sim":
        return _sim(arguments)
    return _mutants(arguments) if arguments.command == "mutants" else _swarm(arguments)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    commands = parser.add_subparsers(dest="command", required=True)
    sim = commands.add_parser("sim", help="live one life and show it")
    sim.add_argument("seed", type=int, nargs="?")
    sim.add_argument("--plan", type=Path, help="a file with a plan, instead of a seed")
    sim.add_argument("--kind", choices=KINDS, default="broker")
    sim.add_argument("--seconds", type=float, default=60.0, help="of faults")
    sim.add_argument("--mutant", help="plant this bug")
    sim.add_argument("--quiet", action="store_true", help="show only what came of it")
    swarm = commands.add_parser("swarm", help="live many lives on all cores")
    swarm.add_argument("--kind", choices=KINDS, default="broker")
    swarm.add_argument("--seeds", type=int)
    swarm.add_argument("--first", type=int, default=0)
    swarm.add_argument("--seconds", type=float, default=60.0, help="of faults in each life")
    swarm.add_argument("--budget", type=float, help="real minutes")
    mutants = commands.add_parser("mutants", help="plant bugs and see how soon they are caught")
    mutants.add_argument("names", nargs="*", metavar="NAME")
    mutants.add_argument("--seeds", type=int, default=SEEDS_MAX)
    mutants.add_argument("--no-shrink", action="store_true")
    mutants.add_argument("--plans", type=Path, help="a directory for the plans that are left")
    mutants.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.command == "sim" and (arguments.seed is None) == (arguments.plan is None):
        parser.error("give either a seed or --plan FILE")
    if arguments.command == "mutants":
        unknown = set(arguments.names) - set(_names_of_mutants())
        if unknown:
            parser.error(f"no planted bug is called {', '.join(sorted(unknown))}")
    return arguments


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _names_of_mutants() -> list[str]:
    return [mutant.name for kind in KINDS.values() for mutant in kind.mutants]


def _sim(arguments: argparse.Namespace) -> int:
    kind = KINDS[arguments.kind]
    if arguments.plan is not None:
        plan = kind.load_plan(arguments.plan)
    else:
        plan = kind.draw_plan(arguments.seed, arguments.seconds)
    show = None if arguments.quiet else _say
    report = kind.live_plan(plan, arguments.mutant, show=show)
    _say(f"reached: {', '.join(sorted(report.sometimes))}")
    _say(f"{report.simulated_s:.1f} simulated seconds, {report.counts}, {report.fingerprint}")
    _say(report.problem if report.checker else "all promises were kept")
    return 1 if report.checker else 0


def _swarm(arguments: argparse.Namespace) -> int:
    size = SwarmSize(
        first=arguments.first,
        seeds=arguments.seeds if arguments.seeds or arguments.budget else LIVES_FOR_ALL_PROBES,
        seconds=arguments.seconds,
        budget_s=None if arguments.budget is None else arguments.budget * 60,
    )

    def show_progress(life_count: int) -> None:
        if life_count % 10 == 0:
            _say(f"{life_count} lives")

    report = Swarm(KINDS[arguments.kind], size, on_life=show_progress).run()
    _say(_describe(report))
    if report.failure is not None:
        _show_failure(report.kind, report.failure, arguments.seconds)
        return 1
    if not report.missed_probes:
        return 0
    missed = ", ".join(report.missed_probes)
    if report.life_count >= LIVES_FOR_ALL_PROBES:
        _say(f"never reached: {missed}; the lives are too tame")
        return 1
    _say(f"never reached: {missed}; {LIVES_FOR_ALL_PROBES} lives would have to")
    return 0


def _show_failure(kind: Kind[Any], failure: LifeReport[Any], seconds: float) -> None:
    sim = "make sim" if kind is KINDS["broker"] else f"make sim KIND={kind.name}"
    _say(f"\nseed {failure.plan.seed} at {failure.simulated_s:.3f} s: {failure.problem}")
    _say(f"replay it: {sim} SEED={failure.plan.seed} SECONDS={seconds:g}")
    _say(f"making its plan of {len(failure.plan.faults)} faults smaller ...")
    shrunk, path = keep_failure(kind, failure)
    _say(f"{len(shrunk.plan.faults)} faults are left: {shrunk.problem}")
    _say(f"replay it: {sim} PLAN={path}")


def _describe(report: SwarmReport) -> str:
    wall_s = max(report.wall_s, 0.001)
    lines = [
        f"{report.life_count} lives, {report.simulated_s:.0f} simulated seconds in {wall_s:.0f} s",
        f"{report.simulated_s / wall_s:.1f} times real time",
        f"{report.counts['events'] / max(report.simulated_s, 1):.0f} events per simulated second",
        f"{report.counts['events'] / wall_s:.0f} events per real second",
        "in all: " + ", ".join(f"{count} {what}" for what, count in report.counts.items()),
        "",
        f"{'lives':>6}  probe",
    ]
    lines += [
        f"{report.life_counts_by_probe[probe]:>6}  {probe:<35} {about}"
        for probe, about in report.kind.probes.items()
    ]
    return "\n".join(lines)


def _mutants(arguments: argparse.Namespace) -> int:
    names = arguments.names or _names_of_mutants()
    began_at = perf_counter()
    budget = None if arguments.no_shrink else _MUTANT_BUDGET
    trials: list[Trial] = []
    _say(table_head())
    for trial in try_mutants(
        names, seeds_max=arguments.seeds, budget=budget, workers=arguments.workers
    ):
        trials.append(trial)
        _say(table_row(trial))
        if arguments.plans is not None and trial.shrunk is not None:
            arguments.plans.mkdir(exist_ok=True)
            path = arguments.plans / f"{trial.name}.json"
            path.write_text(to_json(trial.shrunk.plan), encoding="utf-8")
    lives = sum(trial.seed_count + trial.shrink_count for trial in trials)
    _say("")
    for line in objections(trials):
        _say(line)
    _say(f"\n{score(trials, seeds_max=arguments.seeds)}")
    _say(f"{lives} lives in {perf_counter() - began_at:.0f} s")
    return 0 if all(trial.is_good for trial in trials) else 1


if __name__ == "__main__":
    sys.exit(main())
