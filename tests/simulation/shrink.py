"""Making the plan of a failure small.

Drops what is not needed: faults behind the failure, then as many of the others as possible, then
clients, then settings. A smaller plan counts if the same checker objects, also if it does so with
other dice: what is left of a life may need them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import final

import msgspec

from tests.simulation.planned_life import LifeReport
from tests.simulation.plans import Fault, NetworkPlan, Plan

Run = Callable[[Plan], LifeReport]

_SIBLINGS = ("", " again")
_CALM = NetworkPlan(delay_mean_s=0.0005, loss=0.0, split=0.0, reset=0.0)


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A failure made small."""

    report: LifeReport
    run_count: int
    """How many lives that took."""


@final
class _Shrinking:
    def __init__(self, report: LifeReport, run: Run, runs_max: int) -> None:
        self.best = report
        self.run_count = 0
        self._run = run
        self._runs_max = runs_max

    def is_tired(self) -> bool:
        return self.run_count >= self._runs_max

    def accept(self, plan: Plan) -> bool:
        """Take `plan` for the best one if it fails in the same way."""
        for sibling in _SIBLINGS:
            if self.is_tired():
                return False
            self.run_count += 1
            candidate = msgspec.structs.replace(plan, seed=plan.seed + sibling)
            report = self._run(candidate)
            if report.checker == self.best.checker:
                self.best = report
                return True
        return False

    def drop_faults(self) -> None:
        """Drop pieces of the faults, large ones first, as long as any can go."""
        size = len(self.best.plan.faults)
        while size and not self.is_tired():
            start = 0
            while start < len(self.best.plan.faults) and not self.is_tired():
                faults = self.best.plan.faults
                left = [*faults[:start], *faults[start + size :]]
                if not self.accept(_with_faults(self.best.plan, left)):
                    start += size
            size //= 2

    def simplify(self) -> None:
        """Try what makes the life simpler besides."""
        for change in _simplifications():
            plan = change(self.best.plan)
            if plan != self.best.plan:
                self.accept(plan)


def shrink(report: LifeReport, run: Run, *, runs_max: int = 150) -> Shrunk:
    """Return a smaller plan that fails in the same way as `report`, or the same one."""
    assert report.checker is not None, "only a failure can be made small"
    shrinking = _Shrinking(report, run, runs_max)
    plan = report.plan
    reached = [fault for fault in plan.faults if fault.at <= report.simulated_s]
    seconds = min(plan.seconds, report.simulated_s + 1.0)
    shrinking.accept(msgspec.structs.replace(plan, faults=reached, seconds=seconds))
    shrinking.drop_faults()
    shrinking.simplify()
    return Shrunk(shrinking.best, shrinking.run_count)


def _simplifications() -> Iterator[Callable[[Plan], Plan]]:
    replace = msgspec.structs.replace
    yield lambda plan: replace(plan, network=_CALM)
    yield lambda plan: replace(plan, buggify_rate=0.0)
    yield lambda plan: replace(plan, library_consumer_count=0)
    yield lambda plan: replace(plan, partition_count=1)
    for number in range(3):
        yield partial(_with_one_producer, number)
    yield lambda plan: replace(
        plan, seconds=max([fault.at + fault.duration for fault in plan.faults], default=0.0) + 3.0
    )


def _with_faults(plan: Plan, faults: list[Fault]) -> Plan:
    return msgspec.structs.replace(plan, faults=faults)


def _with_one_producer(number: int, plan: Plan) -> Plan:
    if number >= len(plan.producers):
        return plan
    return msgspec.structs.replace(plan, producers=[plan.producers[number]])
