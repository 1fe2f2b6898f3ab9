"""Tests of forged messages: a group of nodes lives with them as without them."""

import msgspec
import pytest

from tests.simulation.raft.plans import BYZANTINE_KINDS, Fault, Plan, draw_plan
from tests.simulation.raft.run import run

FORGERIES = [
    Fault(at=0.7 + 0.2 * number, kind="forge", node=1 + number % 2, duration=0.0, mask=number)
    for number in range(25)
]


def with_forgeries(seed: int, forgeries: list[Fault]) -> Plan:
    plan = draw_plan(seed)
    plan = msgspec.structs.replace(plan, voter_count=max(plan.voter_count, 3))
    faults = [fault for fault in plan.faults if fault.kind not in BYZANTINE_KINDS]
    return msgspec.structs.replace(plan, faults=[*faults, *forgeries])


def events(plan: Plan) -> tuple[list[str], int]:
    """Return all events of a run but its forgeries, and their number."""
    lines: list[str] = []
    report = run(plan, show=lines.append)
    assert report.checker is None, report.problem
    own = [line for line in lines if "kind='forge'" not in line]
    return own, report.sometimes.get("forge", 0)


@pytest.mark.parametrize("seed", range(2, 12))
def test_nodes_live_with_forgeries_as_without_them(seed: int) -> None:
    alone, no_forgeries = events(with_forgeries(seed, []))
    forged, forgeries = events(with_forgeries(seed, FORGERIES))

    assert no_forgeries == 0
    assert forgeries > 100
    assert forged == alone


def test_plans_are_the_same_without_byzantine_faults() -> None:
    """Their random numbers are their own, so that seeds keep their lives."""
    plan = draw_plan(77)

    kinds = [fault.kind for fault in plan.faults if fault.kind not in BYZANTINE_KINDS]

    assert kinds == ["pause", "crash_in_write"]
