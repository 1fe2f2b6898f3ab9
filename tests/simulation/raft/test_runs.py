"""Simulated lives: they are the same each time, keep all promises, and notice broken ones."""

import os
import subprocess
import sys

import msgspec
import pytest

from tests.paths import ROOT
from tests.simulation.raft.mutants import MUTANTS
from tests.simulation.raft.plans import Fault, Plan, draw_plan
from tests.simulation.raft.run import live
from tests.simulation.raft.shrink import shrink
from tests.simulation.raft.swarm import SwarmReport, live_plan, live_seeds, swarm


def test_a_hundred_short_lives_keep_all_promises() -> None:
    report = live_seeds(range(100))

    assert report.failure is None, f"{report.failure.plan.seed}: {report.failure.problem}"
    assert report.life_count == 100
    assert report.committed_count > 20 * 100


def test_messages_that_overtake_each_other_cause_no_storm() -> None:
    """Found by the simulator: each refusal had the whole window sent again."""
    joins_late = Fault(at_ms=5000, kind="add", node=4, duration_ms=0, mask=0)
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
        faults=(joins_late,),
    )

    report = live(plan)

    assert report.checker is None, report.problem
    assert report.event_count < 5000


@pytest.mark.parametrize("seed", [3, 17, 40])
def test_a_plan_gives_the_same_life_each_time(seed: int) -> None:
    def events() -> list[str]:
        lines: list[str] = []
        live(draw_plan(seed), lines.append)
        return lines

    first = events()

    assert len(first) > 100
    assert events() == first


def test_a_life_does_not_depend_on_the_hashes_of_the_process() -> None:
    def life(hash_seed: str) -> bytes:
        command = [sys.executable, "-m", "tests.simulation.raft", "life", "5"]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True).stdout

    assert life("1") == life("2")


@pytest.mark.parametrize(
    "name",
    [
        "vote-twice",
        "any-log-is-up-to-date",
        "no-term-start",
        "no-pre-vote",
        "no-check-quorum",
        "learner-counts",
        "start-leaves-old-log",
    ],
)
def test_a_planted_bug_is_caught(name: str) -> None:
    """The quick ones; `make raft-mutants` plants them all."""
    report = live_seeds(range(60), name)

    assert report.failure is not None


def test_every_planted_bug_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_planted_bug_is_gone_when_its_block_is_left() -> None:
    plan = draw_plan(3)
    before = live(plan)

    live_plan(plan, "no-term-start")

    assert live(plan) == before


def test_the_plan_of_a_failure_is_made_small() -> None:
    report = live_seeds(range(50), "vote-twice").failure
    assert report is not None

    small = shrink(report, lambda plan: live_plan(plan, "vote-twice"), runs_max=60)

    assert small.checker == report.checker
    assert len(small.plan.faults) <= min(3, len(report.plan.faults))


def test_a_plan_survives_its_file() -> None:
    plan = draw_plan(9)

    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_a_swarm_lives_in_several_processes() -> None:
    counts: list[int] = []

    report = swarm(range(20), 1, counts.append)

    assert report.failure is None
    assert counts == [20]
    assert report.event_count == live_seeds(range(20)).event_count


def test_a_swarm_says_which_states_it_has_never_seen() -> None:
    report = SwarmReport()
    report.lives_by_probe["crash"] = 1

    assert "crash" not in report.missed_probes
    assert "snapshot installed" in report.missed_probes
