"""Shrinking of a failing plan.

It drops faults behind the failure and long before it, then as many other faults as possible, then
idle time, clients and settings. A smaller plan counts if the same checker objects. At first it uses
the seed of the failed run; when too many faults are left, it tries other seeds too, because the
rest of a run may need some luck.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from time import perf_counter
from typing import Generic, final

import msgspec

from tests.simulation.broker.plans import PlannedFault
from tests.simulation.report import PlanType, RunReport

Run = Callable[[PlanType], RunReport[PlanType]]
Simplification = Callable[[PlanType], PlanType]
"""Makes a plan simpler; returns an equal one if it cannot."""

_THROWS = (1, 3, 8)
"""Number of runs in which a plan may fail, in each round."""
_LAST_FAULTS = (0, 1, 2, 3, 5, 8)
_FEW_FAULTS = 3
"""Number of faults that needs no further round."""
_HANDFUL = 5
_HANDFULS = 150
_GAP_MAX_S = 1.0
_AFTERMATH_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkBudget:
    """Limits of the shrinking."""

    runs: int = 300
    wall_s: float = 600.0
    """Real seconds; the current run is then the last one."""
    faults_enough: int = -1
    """Number of faults that is few enough to stop; -1 to find the minimum."""


@dataclass(frozen=True, slots=True)
class Shrunk(Generic[PlanType]):
    """A shrunk failure."""

    report: RunReport[PlanType]
    run_count: int
    """Number of runs of the shrinking."""


@final
class _Shrinking(Generic[PlanType]):
    def __init__(
        self, report: RunReport[PlanType], run: Run[PlanType], budget: ShrinkBudget
    ) -> None:
        self.best = report
        self.run_count = 0
        self.throws = 1
        self._seed = report.plan.seed
        self._run = run
        self._budget = budget
        self._ends_at = perf_counter() + budget.wall_s

    def is_tired(self) -> bool:
        return (
            self.run_count >= self._budget.runs
            or perf_counter() >= self._ends_at
            or len(self.best.plan.faults) <= self._budget.faults_enough
        )

    def accept(self, plan: PlanType) -> bool:
        """Make `plan` the best one if it fails in the same way."""
        for throw in range(self.throws):
            if self.is_tired():
                return False
            self.run_count += 1
            seed = plan.seed if throw == 0 else f"{self._seed} again {self.run_count}"
            report = self._run(msgspec.structs.replace(plan, seed=seed))
            if report.checker == self.best.checker:
                self.best = report
                return True
        return False

    def drop_the_unreached(self) -> None:
        """Drop the faults that had not struck when the checker objected."""
        plan, ended_at = self.best.plan, self.best.simulated_s
        reached = [fault for fault in plan.faults if fault.at <= ended_at]
        seconds = min(plan.seconds, ended_at + 1.0)
        smaller = msgspec.structs.replace(plan, faults=reached, seconds=seconds)
        if smaller != plan:
            self.accept(smaller)

    def keep_the_last(self) -> None:
        """Try whether the last few faults suffice."""
        plan = self.best.plan
        for count in _LAST_FAULTS:
            start = len(plan.faults) - count
            if start <= 0 or self.accept(_with_faults(plan, plan.faults[start:])):
                return

    def drop_faults(self) -> None:
        """Drop parts of the faults, large ones first, as long as any can go."""
        size = len(self.best.plan.faults)
        while size and not self.is_tired():
            start, has_dropped = 0, False
            while start < len(self.best.plan.faults) and not self.is_tired():
                faults = self.best.plan.faults
                left = [*faults[:start], *faults[start + size :]]
                if self.accept(_with_faults(self.best.plan, left)):
                    has_dropped = True
                else:
                    start += size
            if not has_dropped or size > 1:
                size //= 2

    def take_a_handful(self) -> None:
        """Try a few faults at random, each time with another seed, when dropping does not help."""
        plan = self.best.plan
        random = Random(f"handfuls of {self._seed}")
        for _ in range(_HANDFULS):
            if len(self.best.plan.faults) <= _HANDFUL or self.is_tired():
                return
            places = sorted(random.sample(range(len(plan.faults)), _HANDFUL))
            few = _with_faults(plan, [plan.faults[place] for place in places])
            seed = f"{self._seed} handful {self.run_count}"
            self.accept(_without_idle_time(msgspec.structs.replace(few, seed=seed)))

    def simplify(self, simplifications: Iterable[Simplification[PlanType]]) -> None:
        """Try the simplifications of the kind."""
        self._try(_without_idle_time(self.best.plan))
        for simplified in simplifications:
            self._try(simplified(self.best.plan))

    def _try(self, plan: PlanType) -> None:
        if plan != self.best.plan:
            self.accept(plan)


def shrink(
    report: RunReport[PlanType],
    run: Run[PlanType],
    simplifications: Sequence[Simplification[PlanType]],
    *,
    budget: ShrinkBudget | None = None,
) -> Shrunk[PlanType]:
    """Return a smaller plan that fails in the same way as `report`, or the same one."""
    assert report.checker is not None, "only a failure can be shrunk"
    shrinking = _Shrinking(report, run, budget or ShrinkBudget())
    shrinking.drop_the_unreached()
    shrinking.keep_the_last()
    for throws in _THROWS:
        shrinking.throws = throws
        shrinking.drop_faults()
        shrinking.simplify(simplifications)
        shrinking.drop_the_unreached()
        if len(shrinking.best.plan.faults) <= _FEW_FAULTS:
            break
        shrinking.throws = 1
        shrinking.take_a_handful()
    return Shrunk(shrinking.best, shrinking.run_count)


def _without_idle_time(plan: PlanType) -> PlanType:
    """Remove idle time between faults, and after the last one."""
    if not plan.faults:
        return msgspec.structs.replace(plan, seconds=min(plan.seconds, _AFTERMATH_S))
    at = min(plan.faults[0].at, _GAP_MAX_S)
    moved = [msgspec.structs.replace(plan.faults[0], at=at)]
    for before, fault in pairwise(plan.faults):
        at += min(fault.at - before.at, _GAP_MAX_S)
        moved.append(msgspec.structs.replace(fault, at=at))
    end = max(fault.at + fault.duration for fault in moved) + _AFTERMATH_S
    return msgspec.structs.replace(plan, faults=moved, seconds=min(plan.seconds, end))


def _with_faults(plan: PlanType, faults: list[PlannedFault]) -> PlanType:
    return msgspec.structs.replace(plan, faults=faults)
