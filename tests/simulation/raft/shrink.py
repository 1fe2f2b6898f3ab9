"""Making the plan of a failure small.

A smaller plan counts if the same checker objects, with the same dice or with others: what is left
of a life may need them.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from tests.simulation.raft.plans import Plan
from tests.simulation.raft.run import LifeReport

Run = Callable[[Plan], LifeReport]

_CALM: dict[str, Any] = {
    "loss": 0.0,
    "duplication": 0.0,
    "spare_count": 0,
    "entries_max": 100,
    "window_messages": 64,
    "snapshot_every": 1000,
    "delay_ms": 2,
    "sync_ms": 1,
    "is_encoded": False,
    "has_return": False,
    "voter_count": 3,
}


def shrink(report: LifeReport, run: Run, *, runs_max: int = 400) -> LifeReport:
    """Return the report of a smaller plan that fails in the same way, or the same one."""
    assert report.checker is not None, "only a failure can be made small"
    best = report
    run_count = 0

    def accept(plan: Plan) -> bool:
        nonlocal best, run_count
        for sibling in ("", "'", "''"):
            if run_count >= runs_max:
                return False
            run_count += 1
            found = run(msgspec.structs.replace(plan, seed=plan.seed + sibling))
            if found.checker == report.checker:
                best = found
                return True
        return False

    size = len(best.plan.faults)
    while size and run_count < runs_max:
        start = 0
        while start < len(best.plan.faults):
            faults = best.plan.faults
            left = faults[:start] + faults[start + size :]
            if not accept(msgspec.structs.replace(best.plan, faults=left)):
                start += size
        size //= 2
    for name, value in _CALM.items():
        plan = msgspec.structs.replace(best.plan, **{name: value})
        nodes = plan.voter_count + plan.spare_count
        if plan != best.plan and all(fault.node <= nodes for fault in plan.faults):
            accept(plan)
    return best
