"""Tests of simulated runs: they are deterministic, keep all promises, and find mutations."""

import os
import subprocess
import sys

import msgspec
import pytest

from tests.paths import ROOT
from tests.simulation.kinds import RAFT
from tests.simulation.mutations.registry import find_mutation
from tests.simulation.raft.plans import SECONDS, Fault, Plan, draw_plan
from tests.simulation.raft.run import run
from tests.simulation.raft.simplifications import SIMPLIFICATIONS
from tests.simulation.shrink import ShrinkBudget, shrink
from tests.simulation.swarm import Swarm, SwarmReport, SwarmSize, run_seeds


def test_forty_short_runs_keep_all_promises() -> None:
    reports = run_seeds("raft", range(40), SECONDS)

    assert reports[-1].checker is None, f"{reports[-1].plan.seed}: {reports[-1].problem}"
    assert len(reports) == 40
    assert sum(report.counts["committed"] for report in reports) > 20 * 40


def test_reordered_messages_cause_no_append_storm() -> None:
    """Found by the simulator: each rejection caused the whole window to be sent again."""
    joins_late = Fault(at=5.0, kind="add", duration=0.0, node=4, mask=0)
    plan = msgspec.structs.replace(
        draw_plan(0),
        voter_count=3,
        spare_count=1,
        has_learners=False,
        entries_max=1,
        window_messages=64,
        snapshot_every=1000,
        propose_ms=40,
        sync_ms=80,
        delay_ms=2,
        loss=0.0,
        duplication=0.05,
        faults=[joins_late],
    )

    report = run(plan)

    assert report.checker is None, report.problem
    assert report.counts["events"] < 5000


@pytest.mark.parametrize("seed", [3, 17, 40])
def test_a_plan_gives_the_same_run_each_time(seed: int) -> None:
    def events() -> list[str]:
        lines: list[str] = []
        run(draw_plan(seed), show=lines.append)
        return lines

    first = events()

    assert len(first) > 100
    assert events() == first


def test_a_run_does_not_depend_on_the_hashes_of_the_process() -> None:
    def run(hash_seed: str) -> bytes:
        command = [sys.executable, "-m", "tests.simulation", "raft", "--seed", "5"]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True).stdout

    assert run("1") == run("2")


def test_a_mutation_is_removed_at_the_end_of_its_block() -> None:
    plan = draw_plan(3)
    before = run(plan)

    RAFT.run_plan(plan, "no-term-start")

    assert run(plan) == before


def test_the_plan_of_a_failure_is_shrunk() -> None:
    with find_mutation("vote-twice").applied():
        report = run_seeds("raft", range(50), SECONDS)[-1]

    small = shrink(
        report,
        lambda plan: RAFT.run_plan(plan, "vote-twice"),
        SIMPLIFICATIONS,
        budget=ShrinkBudget(runs=60),
    ).report

    assert small.checker == report.checker
    assert len(small.plan.faults) <= min(3, len(report.plan.faults))


def test_a_plan_survives_a_round_trip_through_a_file() -> None:
    plan = draw_plan(9)

    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_a_swarm_runs_in_several_processes() -> None:
    counts: list[int] = []

    report = Swarm(RAFT, SwarmSize(seeds=5, workers=1), on_run=counts.append).run()

    assert report.failure is None
    assert counts == [*range(1, 6)]
    alone = run_seeds("raft", range(5), SECONDS)
    assert report.counts["events"] == sum(each.counts["events"] for each in alone)


def test_a_swarm_reports_missed_probes() -> None:
    report = SwarmReport(RAFT)
    report.run_counts_by_probe["crash"] = 1

    assert "crash" not in report.missed_probes
    assert "snapshot installed" in report.missed_probes
