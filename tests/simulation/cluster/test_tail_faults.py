"""Tests of tail faults: a healthy cluster loses nothing by them, one with a defect is found."""

from typing import Final

import pytest
from msgspec.structs import replace

from tests.simulation.broker.plans import Fault
from tests.simulation.broker.simplifications import CALM
from tests.simulation.cluster.plans import ClusterPlan, draw_plan
from tests.simulation.kinds import CLUSTER

_SECONDS: Final = 7.0
_WAIT: Final = {"recovery_election_wait_ms": "1h"}


def plan_of(*faults: Fault, node_count: int = 3) -> ClusterPlan:
    """Return a plan with these faults alone."""
    drawn = draw_plan(0, _SECONDS)
    return replace(
        drawn,
        node_count=node_count,
        replication_factor=node_count,
        topic_settings={"durability": "fsync", "segment_bytes": "32KiB"},
        cluster_settings=_WAIT | ({"min_insync_replicas": "3"} if node_count > 3 else {}),
        partition_count=2,
        quiet_after_s=2.0,
        network=CALM,
        buggify_rate=0.0,
        outage_rate=0.0,
        clock_error_s=0.0,
        clock_drift=0.0,
        churn_pause_s=None,
        move_pause_s=None,
        grow_pause_s=None,
        stage_pause_s=None,
        member_count=0,
        faults=list(faults),
    )


def damages(*dice: float) -> list[Fault]:
    """Return tail damage, twice each."""
    return [Fault(at, "tail_damage", 0.5, each) for each in dice for at in (1.0, 4.0)]


BACK: Final = Fault(1.0, "directory_back", 2.0, 0.3)

CASES: Final = {
    "tail damaged: bytes": (plan_of(*damages(2 / 13)), "first-back-leads"),
    "idle tail damaged": (plan_of(*damages(3 / 13)), "no-checkpoint-when-idle"),
    "old directory recognised": (plan_of(BACK), "generation-ignored"),
}
"""By probe: a plan that reaches it, and a mutation that fails in it."""


@pytest.mark.parametrize("probe", CASES)
def test_one_damaged_disk_loses_no_acknowledged_record_unless_a_rule_is_missing(probe: str) -> None:
    plan, mutation = CASES[probe]

    report = CLUSTER.run_plan(plan)

    assert report.checker is None, report.problem
    assert report.sometimes[probe]
    assert CLUSTER.run_plan(plan, mutation).checker is not None


def test_two_damaged_disks_of_five_lose_no_acknowledged_record() -> None:
    report = CLUSTER.run_plan(plan_of(*damages(0.85), node_count=5))

    assert report.checker is None, report.problem
    assert report.sometimes["tails damaged on two of five"]
