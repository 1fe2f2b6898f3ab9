"""Runs that depend on a seed alone, without a plan of faults to shrink."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.simulation.broker.plans import RunPlan
from tests.simulation.report import RunReport, judged


class SeedPlan(RunPlan[Any], frozen=True):
    """One run with a fixed length and fixed faults."""


def draw_plan(seed: int, seconds: float) -> SeedPlan:
    """Return the plan of a seed; `seconds` is ignored."""
    del seconds
    return SeedPlan(str(seed), 0.0, [])


def runs_of(act: Callable[[int], Mapping[str, int]]) -> Callable[..., RunReport[SeedPlan]]:
    """Return the `run` of a kind whose runs are `act` with a seed; `act` returns its counts."""

    def run(
        plan: SeedPlan,
        *,
        show: Callable[[str], None] | None = None,
        shows_steps: bool = False,
        goes_on: bool = False,
    ) -> RunReport[SeedPlan]:
        del show, shows_steps, goes_on
        counts: dict[str, int] = {}
        checker, problem = judged(lambda: counts.update(act(int(plan.seed))), asserts=True)
        return RunReport(
            plan=plan,
            checker=checker,
            problem=problem,
            sometimes={},
            counts=counts,
            simulated_s=0.0,
            fingerprint=str(sorted(counts.items())),
            objectors=[checker] if checker else [],
        )

    return run
