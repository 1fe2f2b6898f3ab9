"""Tests of shrinking: a failure becomes small, and stays the same failure."""

import msgspec

from tests.simulation.broker.plans import Plan, draw_plan
from tests.simulation.broker.simplifications import SIMPLIFICATIONS
from tests.simulation.report import RunReport
from tests.simulation.shrink import ShrinkBudget, shrink


def pretended_run(plan: Plan) -> RunReport[Plan]:
    """Fail if the plan has a power cut and, after it, a rot; deterministic."""
    kinds = [fault.kind for fault in plan.faults]
    is_failure = "cut_power" in kinds and "rot" in kinds[kinds.index("cut_power") :]
    return RunReport(
        plan=plan,
        checker="Pretended" if is_failure else None,
        problem="",
        sometimes={},
        counts={},
        simulated_s=plan.seconds,
        fingerprint="",
    )


def failing_plan() -> Plan:
    plans = (draw_plan(seed, 60.0) for seed in range(1000))
    return next(plan for plan in plans if pretended_run(plan).checker is not None)


def test_shrinking_keeps_only_relevant_faults() -> None:
    shrunk = shrink(pretended_run(failing_plan()), pretended_run, SIMPLIFICATIONS)

    assert [fault.kind for fault in shrunk.report.plan.faults] == ["cut_power", "rot"]


def test_shrinking_simplifies_other_settings() -> None:
    plan = shrink(pretended_run(failing_plan()), pretended_run, SIMPLIFICATIONS).report.plan

    assert plan.partition_count == 1
    assert len(plan.producers) == 1
    assert plan.network.loss == 0.0
    assert plan.buggify_rate == 0.0


def test_shrinking_ends_with_its_run_budget() -> None:
    shrunk = shrink(
        pretended_run(failing_plan()),
        pretended_run,
        SIMPLIFICATIONS,
        budget=ShrinkBudget(runs=3),
    )

    assert shrunk.run_count <= 3
    assert shrunk.report.checker == "Pretended"


def test_shrinking_ends_with_few_enough_faults() -> None:
    report = pretended_run(failing_plan())

    shrunk = shrink(report, pretended_run, SIMPLIFICATIONS, budget=ShrinkBudget(faults_enough=4))

    assert len(shrunk.report.plan.faults) <= 4
    assert shrunk.run_count < shrink(report, pretended_run, SIMPLIFICATIONS).run_count


def test_shrinking_rejects_a_different_failure() -> None:
    plan = failing_plan()
    report = msgspec.structs.replace(pretended_run(plan), checker="Another")

    assert shrink(report, pretended_run, SIMPLIFICATIONS).report == report
