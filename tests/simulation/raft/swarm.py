"""Many lives on all cores, until one fails."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing import get_context
from time import process_time

from tests.simulation.raft.mutants import find_mutant
from tests.simulation.raft.plans import Plan, draw_plan
from tests.simulation.raft.run import LifeReport, live

_CHUNK = 50

PROBES = (
    "crash",
    "crash_on_commit",
    "crash_on_sync",
    "crash_in_write",
    "crash_on_election",
    "crash_in_change",
    "crash_in_install",
    "crash_on_vote",
    "mute_on_election",
    "damage",
    "transfer",
    "AddLearner",
    "Promote",
    "Remove",
    "snapshot sent",
    "snapshot installed",
)
"""What a swarm of a few hundred lives must have seen, or its lives are too tame."""


@dataclass(slots=True)
class SwarmReport:
    """What came of many lives."""

    life_count: int = 0
    event_count: int = 0
    committed_count: int = 0
    simulated_ms: float = 0.0
    cpu_s: float = 0.0
    """What it took of all processors."""
    lives_by_probe: Counter[str] = field(default_factory=Counter[str])
    failure: LifeReport | None = None
    """The one with the lowest seed."""

    def add(self, life: LifeReport) -> None:
        """Take in one life."""
        self.life_count += 1
        self.event_count += life.event_count
        self.committed_count += life.committed_count
        self.simulated_ms += life.at_ms
        self.lives_by_probe.update(life.sometimes.keys())
        if life.checker is not None and self.failure is None:
            self.failure = life

    def merge(self, other: "SwarmReport") -> None:
        """Take in the lives behind these."""
        self.life_count += other.life_count
        self.event_count += other.event_count
        self.committed_count += other.committed_count
        self.simulated_ms += other.simulated_ms
        self.cpu_s += other.cpu_s
        self.lives_by_probe.update(other.lives_by_probe)
        self.failure = self.failure or other.failure

    @property
    def missed_probes(self) -> list[str]:
        """What no life has seen."""
        return [probe for probe in PROBES if not self.lives_by_probe[probe]]


def live_plan(plan: Plan, mutant: str | None = None) -> LifeReport:
    """Live one life, with a planted bug if one is named."""
    with find_mutant(mutant).planted() if mutant else nullcontext():
        return live(plan)


def live_seeds(seeds: range, mutant: str | None = None) -> SwarmReport:
    """Live the lives of these seeds, in this process, up to the first that fails."""
    report = SwarmReport()
    began_at = process_time()
    with find_mutant(mutant).planted() if mutant else nullcontext():
        for seed in seeds:
            report.add(live(draw_plan(seed)))
            if report.failure is not None:
                break
    report.cpu_s = process_time() - began_at
    return report


def swarm(seeds: range, worker_count: int, on_progress: Callable[[int], None]) -> SwarmReport:
    """Live the lives of these seeds in several processes, up to the first that fails."""
    report = SwarmReport()
    chunks = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)]
    # Forked children would inherit whatever threads and locks the caller has.
    context = get_context("spawn")
    with ProcessPoolExecutor(worker_count, mp_context=context) as pool:
        for done in pool.map(live_seeds, chunks):
            report.merge(done)
            on_progress(report.life_count)
            if report.failure is not None:
                pool.shutdown(cancel_futures=True)
                break
    return report
