"""Many lives on all cores, until one fails or the time is over."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final, final

from tests.simulation.broker.plans import to_json
from tests.simulation.children import workers
from tests.simulation.kinds import KINDS, Kind
from tests.simulation.report import LifeReport, PlanType
from tests.simulation.shrink import shrink

LIVES_FOR_ALL_PROBES = 200
"""A swarm of so many lives must have reached every probe."""

LIVES_FOR_EASY_PROBES = 12
EASY_PROBES: Final = (
    "torn tail",
    "crash after append",
    "cut: nothing",
    "cut: prefix",
    "poll woken",
    "outcome unknown",
)
"""Two lives of three reach each of them, so that the smallest swarm reaches all."""


@dataclass(slots=True)
class SwarmReport:
    """What came of a swarm."""

    kind: Kind[Any]
    life_count: int = 0
    simulated_s: float = 0.0
    wall_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter[str])
    """Events, crashes and whatever else lives count, in all of them together."""
    life_counts_by_probe: Counter[str] = field(default_factory=Counter[str])
    """How many lives have reached each probe."""
    failure: LifeReport[Any] | None = None

    @property
    def missed_probes(self) -> list[str]:
        """The probes that no life has reached."""
        return [probe for probe in self.kind.probes if not self.life_counts_by_probe[probe]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmSize:
    """How many lives, how long, and for how long."""

    first: int = 0
    """The first seed."""
    seeds: int | None = None
    """How many; `None` for as many as there is time for."""
    seconds: float = 60.0
    """How long the faults of each life go on, in simulated seconds."""
    budget_s: float | None = None
    """When to begin no more lives, in real seconds; `None` for no limit."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)


def live_seed(kind: str, seed: int, seconds: float) -> LifeReport[Any]:
    """Live the life of one seed."""
    return KINDS[kind].live(KINDS[kind].draw_plan(seed, seconds))


@final
class Swarm:
    """Lives of consecutive seeds, all cores busy. Seeds that fail are reported in their order."""

    def __init__(self, kind: Kind[Any], size: SwarmSize, *, on_life: Callable[[int], None]) -> None:
        """Consist of lives of a kind; call `on_life` with their number after each."""
        self._kind = kind
        self._size = size
        self._on_life = on_life

    def run(self) -> SwarmReport:
        """Return what came of it: all that there was to live, or the first failure."""
        report = SwarmReport(self._kind)
        began_at = perf_counter()
        size = self._size
        seeds: Iterator[int] = islice(count(size.first), size.seeds)
        with workers(size.workers) as pool:
            under_way: dict[Future[LifeReport[Any]], int] = {}
            while True:
                is_late = size.budget_s is not None and perf_counter() - began_at > size.budget_s
                while not is_late and report.failure is None and len(under_way) < size.workers:
                    seed = next(seeds, None)
                    if seed is None:
                        break
                    life = pool.submit(live_seed, self._kind.name, seed, size.seconds)
                    under_way[life] = seed
                if not under_way:
                    break
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for life in sorted(done, key=lambda life: under_way[life]):
                    del under_way[life]
                    self._take(report, life.result())
        report.wall_s = perf_counter() - began_at
        return report

    def _take(self, report: SwarmReport, life: LifeReport[Any]) -> None:
        report.life_count += 1
        report.simulated_s += life.simulated_s
        report.counts.update(life.counts)
        report.life_counts_by_probe.update(life.sometimes.keys())
        if life.checker is not None and report.failure is None:
            report.failure = life
        self._on_life(report.life_count)


def keep_failure(
    kind: Kind[PlanType], failure: LifeReport[PlanType]
) -> tuple[LifeReport[PlanType], Path]:
    """Make the plan of a failure small, write it to a file, and return both."""
    shrunk = shrink(failure, kind.live_plan, kind.simplifications).report
    kind.kept_plans.mkdir(exist_ok=True)
    path = kind.kept_plans / f"{shrunk.checker}-{failure.plan.seed}.json".replace(" ", "-")
    path.write_text(to_json(shrunk.plan), encoding="utf-8")
    return shrunk, path
