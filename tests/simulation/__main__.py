"""The command line of the simulator.

python -m tests.simulation KIND                       many runs, on all cores: --seeds N, --first K,
                                                      --budget MINUTES
python -m tests.simulation KIND --seed N              one run, with each of its events
python -m tests.simulation KIND --plan FILE           the run of a plan
python -m tests.simulation KIND --mutations [NAME ..] number of runs until each mutation is found

Kinds: broker (a single broker), compacted (a single broker with a compacted topic), cluster, queues
(clusters that serve queues), three_brokers, transactions and processing (three brokers under
faults), counts (their metrics), raft, groups, metadata and isr (single cores); with `--mutations`
also `all`.
`--seconds` sets the duration of the faults of a run. `--record` adds the results of a swarm or of
mutations to the files in `tests/simulation/results/`; `make generate` writes
`docs/simulation-results.md` from them.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.simulation.broker.plans import to_json
from tests.simulation.kinds import KINDS, Kind
from tests.simulation.mutations.measure import (
    FEW_FAULTS,
    Trial,
    objections,
    score,
    table_head,
    table_row,
    try_mutations,
)
from tests.simulation.report import RunReport
from tests.simulation.results.records import (
    MUTATIONS,
    SWARMS,
    append,
    result_of_swarm,
    result_of_trial,
    state_now,
)
from tests.simulation.shrink import ShrinkBudget
from tests.simulation.swarm import Swarm, SwarmReport, SwarmSize, keep_failure

_MUTATION_BUDGET = ShrinkBudget(runs=300, wall_s=300.0, faults_enough=FEW_FAULTS - 2)
_ALL = "all"


def main() -> int:
    """Execute the command line; return the exit code."""
    arguments = parse_arguments(sys.argv[1:])
    if arguments.mutations is not None:
        return _find_mutations(arguments)
    kind = KINDS[arguments.kind]
    if arguments.seed is not None or arguments.plan is not None:
        return _run_one(kind, arguments)
    return _swarm(kind, arguments)


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a command line, or exit with its errors."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=[*KINDS, _ALL])
    parser.add_argument("--seconds", type=float, help="seconds with faults in each run")
    parser.add_argument("--record", action="store_true", help="add results to the record")
    one = parser.add_argument_group("one run")
    one.add_argument("--seed", type=int)
    one.add_argument("--plan", type=Path, help="file with a plan, instead of a seed")
    one.add_argument("--mutation", metavar="NAME", help="apply this mutation")
    one.add_argument("--quiet", action="store_true", help="show only the result")
    many = parser.add_argument_group("many runs")
    many.add_argument("--seeds", type=int, help="number of runs; with --mutations the maximum")
    many.add_argument("--first", type=int, default=0, help="the first seed")
    many.add_argument("--budget", type=float, help="real minutes")
    many.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    mutations = parser.add_argument_group("mutations")
    mutations.add_argument(
        "--mutations", nargs="*", metavar="NAME", help="all, if no name is given"
    )
    mutations.add_argument("--no-shrink", action="store_true")
    mutations.add_argument("--plans", type=Path, help="directory for the shrunk plans")
    arguments = parser.parse_args(words)
    if arguments.kind == _ALL and arguments.mutations is None:
        parser.error("only --mutations takes all kinds")
    if arguments.seed is not None and arguments.plan is not None:
        parser.error("give either --seed or --plan")
    if arguments.record and (arguments.seed is not None or arguments.plan is not None):
        parser.error("--record takes many runs or --mutations")
    if arguments.mutations:
        unknown = set(arguments.mutations) - {name for _, name in _trials_of(arguments.kind)}
        if unknown:
            parser.error(f"no mutation is called {', '.join(sorted(unknown))}")
    return arguments


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _trials_of(kind_name: str) -> list[tuple[str, str]]:
    kinds = KINDS.values() if kind_name == _ALL else [KINDS[kind_name]]
    return [(kind.name, mutation.name) for kind in kinds for mutation in kind.mutations]


def _run_one(kind: Kind[Any], arguments: argparse.Namespace) -> int:
    if arguments.plan is not None:
        plan = kind.load_plan(arguments.plan)
    else:
        plan = kind.draw_plan(arguments.seed, arguments.seconds or kind.seconds)
    show = None if arguments.quiet else _say
    report = kind.run_plan(plan, arguments.mutation, show=show)
    _say(f"reached: {', '.join(sorted(report.sometimes))}")
    _say(f"{report.simulated_s:.1f} simulated seconds, {report.counts}, {report.fingerprint}")
    _say(report.problem if report.checker else "all promises were kept")
    return 1 if report.checker else 0


def _swarm(kind: Kind[Any], arguments: argparse.Namespace) -> int:
    size = SwarmSize(
        first=arguments.first,
        seeds=arguments.seeds or (None if arguments.budget else kind.runs_for_all_probes),
        seconds=arguments.seconds,
        budget_s=None if arguments.budget is None else arguments.budget * 60,
        workers=arguments.workers,
    )
    step = 10 * kind.seeds_at_once

    def show_progress(run_count: int) -> None:
        if run_count % step == 0:
            _say(f"{run_count} runs")

    state = state_now() if arguments.record else None
    swarm = Swarm(kind, size, on_run=show_progress)
    report = swarm.run()
    _say(_describe(report))
    if state is not None:
        result = result_of_swarm(report, state, first=size.first, seconds=swarm.seconds)
        append(SWARMS, result)
    if report.failure is not None:
        _show_failure(kind, report.failure, swarm.seconds)
        return 1
    if not report.missed_probes:
        return 0
    missed = ", ".join(report.missed_probes)
    if report.run_count >= kind.runs_for_all_probes:
        _say(f"never reached: {missed}; the runs have too few faults")
        return 1
    _say(f"never reached: {missed}; {kind.runs_for_all_probes} runs should reach them")
    return 0


def _show_failure(kind: Kind[Any], failure: RunReport[Any], seconds: float) -> None:
    sim = f"make sim KIND={kind.name}"
    _say(f"\nseed {failure.plan.seed} at {failure.simulated_s:.3f} s: {failure.problem}")
    _say(f"replay it: {sim} SEED={failure.plan.seed} SECONDS={seconds:g}")
    _say(f"shrinking its plan of {len(failure.plan.faults)} faults ...")
    shrunk, path = keep_failure(kind, failure)
    _say(f"{len(shrunk.plan.faults)} faults are left: {shrunk.problem}")
    _say(f"replay it: {sim} PLAN={path}")


def _describe(report: SwarmReport) -> str:
    wall_s = max(report.wall_s, 0.001)
    lines = [f"{report.run_count} runs in {wall_s:.0f} s"]
    if report.simulated_s:
        lines += [
            f"{report.simulated_s:.0f} simulated seconds",
            f"{report.simulated_s / wall_s:.1f} times real time",
            f"{report.counts['events'] / report.simulated_s:.0f} events per simulated second",
            f"{report.counts['events'] / wall_s:.0f} events per real second",
        ]
    lines.append("in all: " + ", ".join(f"{count} {what}" for what, count in report.counts.items()))
    if report.kind.probes:
        lines += ["", f"{'runs':>6}  probe"]
    lines += [
        f"{report.run_counts_by_probe[probe]:>6}  {probe:<35} {about}"
        for probe, about in report.kind.probes.items()
    ]
    return "\n".join(lines)


def _find_mutations(arguments: argparse.Namespace) -> int:
    wanted = set(arguments.mutations)
    names = [each for each in _trials_of(arguments.kind) if not wanted or each[1] in wanted]
    began_at = perf_counter()
    budget = None if arguments.no_shrink else _MUTATION_BUDGET
    state = state_now() if arguments.record else None
    trials: list[Trial] = []
    _say(table_head())
    for trial in try_mutations(
        names, seeds_max=arguments.seeds, budget=budget, workers=arguments.workers
    ):
        trials.append(trial)
        _say(table_row(trial))
        if state is not None:
            append(MUTATIONS, result_of_trial(trial, state))
        if arguments.plans is not None and trial.shrunk is not None:
            arguments.plans.mkdir(exist_ok=True)
            path = arguments.plans / f"{trial.kind}-{trial.name}.json"
            path.write_text(to_json(trial.shrunk.plan), encoding="utf-8")
    run_count = sum(trial.seed_count + trial.shrink_count for trial in trials)
    _say("")
    for line in objections(trials):
        _say(line)
    _say(f"\n{score(trials)}")
    _say(f"{run_count} runs in {perf_counter() - began_at:.0f} s")
    return 0 if all(trial.is_good for trial in trials) else 1


if __name__ == "__main__":
    sys.exit(main())
