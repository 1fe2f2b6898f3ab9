"""Runs of a broker that compacts its topic; `make swarm KIND=compacted` runs more of them."""

from msgspec.structs import replace

from tests.simulation.broker.compacted import draw_plan
from tests.simulation.broker.plans import Fault
from tests.simulation.kinds import COMPACTED

SECONDS = 12.0
CRASHES = [Fault(at, "crash_in_swap", 1.0, dice) for at, dice in ((0.5, 0.5), (3.0, 0.3))]
GROWTH = [Fault(at, "add_partitions", 0.0, at / SECONDS) for at in (1.0, 4.0, 7.0)]


def test_a_compacted_plan_is_drawn_like_a_broker_plan() -> None:
    plans = [draw_plan(seed, 60.0) for seed in range(20)]
    kinds = set[str]().union(*({fault.kind for fault in plan.faults} for plan in plans))

    assert draw_plan(7, 30.0) == draw_plan(7, 30.0)
    assert all(plan.is_compacted for plan in plans)
    assert {"crash_in_swap", "cut_power", "delete_records", "alter_topic", "stop"} <= kinds
    assert {"rot", "rot_frame", "rot_checkpoint", "lose_sector"} <= kinds


def test_a_growing_compacted_topic_keeps_all_promises_across_crashes() -> None:
    plan = draw_plan(0, SECONDS)

    report = COMPACTED.run_plan(replace(plan, faults=[*CRASHES, *GROWTH, *plan.faults]))

    assert report.checker is None, report.problem
    assert report.sometimes["log compacted"]
    assert report.sometimes["partitions added"]
    assert report.sometimes["crash in swap"]
