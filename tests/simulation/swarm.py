"""Many runs on all cores, until one fails or the time budget is spent."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final, final

from tests.simulation.broker.plans import to_json
from tests.simulation.children import workers
from tests.simulation.kinds import KINDS, Kind
from tests.simulation.report import PlanType, RunReport
from tests.simulation.shrink import shrink

RUNS_FOR_EASY_PROBES = 12
EASY_PROBES: Final = (
    "torn tail",
    "crash after append",
    "cut: nothing",
    "cut: prefix",
    "poll woken",
    "outcome unknown",
)
"""Probes that two runs of three reach, so that the smallest swarm reaches all of them."""


@dataclass(slots=True)
class SwarmReport:
    """Result of a swarm."""

    kind: Kind[Any]
    run_count: int = 0
    failed_count: int = 0
    simulated_s: float = 0.0
    wall_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter[str])
    """Events, crashes and other counters, summed over all runs."""
    run_counts_by_probe: Counter[str] = field(default_factory=Counter[str])
    """Number of runs that reached each probe."""
    failure: RunReport[Any] | None = None

    @property
    def missed_probes(self) -> list[str]:
        """The probes that no run has reached."""
        return [probe for probe in self.kind.probes if not self.run_counts_by_probe[probe]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmSize:
    """Number and duration of the runs, and time budget."""

    first: int = 0
    """The first seed."""
    seeds: int | None = None
    """Number of seeds; `None` for no limit but the budget."""
    seconds: float | None = None
    """Duration of the faults of each run in simulated seconds; by default that of its kind."""
    budget_s: float | None = None
    """Real seconds after which no run begins; `None` for no limit."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)


def run_seeds(kind_name: str, seeds: Sequence[int], seconds: float) -> list[RunReport[Any]]:
    """Execute the runs of these seeds, up to the first that fails."""
    kind = KINDS[kind_name]
    reports: list[RunReport[Any]] = []
    for seed in seeds:
        reports.append(kind.run(kind.draw_plan(seed, seconds)))
        if reports[-1].checker is not None:
            break
    return reports


@final
class Swarm:
    """Runs of consecutive seeds on all cores. Seeds that fail are reported in their order."""

    def __init__(self, kind: Kind[Any], size: SwarmSize, *, on_run: Callable[[int], None]) -> None:
        """Consist of runs of a kind; call `on_run` with the number of runs after each."""
        self._kind = kind
        self._size = size
        self._on_run = on_run

    @property
    def seconds(self) -> float:
        """Duration of the faults of each run."""
        return self._kind.seconds if self._size.seconds is None else self._size.seconds

    def run(self) -> SwarmReport:
        """Execute all runs, or up to the first failure, and return the result."""
        report = SwarmReport(self._kind)
        began_at = perf_counter()
        size = self._size
        seeds: Iterator[int] = islice(count(size.first), size.seeds)
        with workers(size.workers) as pool:
            under_way: dict[Future[list[RunReport[Any]]], int] = {}
            while True:
                is_late = size.budget_s is not None and perf_counter() - began_at > size.budget_s
                while not is_late and report.failure is None and len(under_way) < size.workers:
                    chunk = list(islice(seeds, self._kind.seeds_at_once))
                    if not chunk:
                        break
                    runs = pool.submit(run_seeds, self._kind.name, chunk, self.seconds)
                    under_way[runs] = chunk[0]
                if not under_way:
                    break
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for runs in sorted(done, key=lambda runs: under_way[runs]):
                    del under_way[runs]
                    for one in runs.result():
                        self._take(report, one)
        report.wall_s = perf_counter() - began_at
        return report

    def _take(self, report: SwarmReport, run: RunReport[Any]) -> None:
        report.run_count += 1
        report.simulated_s += run.simulated_s
        report.counts.update(run.counts)
        report.run_counts_by_probe.update(run.sometimes.keys())
        if run.checker is not None:
            report.failed_count += 1
            report.failure = report.failure or run
        self._on_run(report.run_count)


def keep_failure(
    kind: Kind[PlanType], failure: RunReport[PlanType]
) -> tuple[RunReport[PlanType], Path]:
    """Shrink the plan of a failure, write it to a file, and return both."""
    shrunk = shrink(failure, kind.run_plan, kind.simplifications).report
    kind.kept_plans.mkdir(exist_ok=True)
    path = kind.kept_plans / f"{shrunk.checker}-{failure.plan.seed}.json".replace(" ", "-")
    path.write_text(to_json(shrunk.plan), encoding="utf-8")
    return shrunk, path
