"""A few runs of clusters, always the same; `make swarm KIND=cluster` runs more of them."""

from pathlib import Path

import msgspec
import pytest

from tests.simulation.cluster.plans import FAULT_GAPS_S, ClusterPlan, draw_plan
from tests.simulation.cluster.run import run
from tests.simulation.cluster.sometimes import PROBES
from tests.simulation.kinds import CLUSTER

SECONDS = 3.0
RUN_COUNT = 3
KEPT = sorted(CLUSTER.kept_plans.glob("*.json"))


@pytest.mark.parametrize("seed", range(RUN_COUNT))
def test_no_run_of_a_cluster_breaks_a_promise(seed: int) -> None:
    plan = draw_plan(seed, SECONDS)
    if seed == 0:
        plan = msgspec.structs.replace(plan, grow_pause_s=1.0)
    report = run(plan)

    assert report.checker is None, (
        f"seed {seed} breaks a promise: {report.problem}\n"
        f"replay it: make sim KIND=cluster SEED={seed} SECONDS={SECONDS:g}"
    )
    assert report.counts["acknowledged"] > 0
    assert seed > 0 or report.sometimes["partitions added"]
    assert report.sometimes.keys() <= PROBES.keys()


def test_a_plan_gives_the_same_run_after_other_runs_in_the_process() -> None:
    plan = draw_plan(9, 1.0)

    reports = [run(plan), run(msgspec.structs.replace(plan, seed="other")), run(plan)]

    assert reports[0] == reports[2]
    assert reports[0].fingerprint != reports[1].fingerprint


def test_showing_a_run_does_not_change_it() -> None:
    lines: list[str] = []
    plan = draw_plan(9, 0.5)

    assert run(plan, show=lines.append, shows_steps=True) == run(plan)
    assert lines


def test_all_kinds_of_faults_are_drawn_and_none_is_in_every_plan() -> None:
    plans = [draw_plan(seed, 60.0) for seed in range(40)]
    kinds = [{fault.kind for fault in plan.faults} for plan in plans]

    assert set().union(*kinds) == FAULT_GAPS_S.keys()
    assert not set(FAULT_GAPS_S).intersection(*kinds)


def test_a_plan_survives_a_round_trip_through_a_file() -> None:
    plan = draw_plan(7, 30.0)

    assert msgspec.json.decode(msgspec.json.encode(plan), type=ClusterPlan) == plan
    assert draw_plan(8, 30.0) != plan


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_plan_that_failed_once_does_not_fail_again(path: Path) -> None:
    report = run(CLUSTER.load_plan(path))

    assert report.checker is None, report.problem
