"""Tests of the measurement: a mutation counts as found only by a checker, and if it replays."""

import msgspec
import pytest

from tests.simulation.broker.plans import Plan, draw_plan
from tests.simulation.kinds import BROKER
from tests.simulation.mutations.measure import (
    Trial,
    complaint_about,
    is_objection,
    objections,
    score,
    table_row,
    try_mutation,
)
from tests.simulation.report import RunReport
from tests.simulation.shrink import ShrinkBudget


def report_of(checker: str | None, *, seed: int = 1, fault_count: int = 0) -> RunReport[Plan]:
    plan = draw_plan(seed, 60.0)
    assert len(plan.faults) >= fault_count
    plan = msgspec.structs.replace(plan, seconds=1.0, faults=plan.faults[:fault_count])
    return RunReport(plan, checker, "", {}, {}, 1.0, "")


def trial_of(checker: str | None, *, fault_count: int = 0, complaint: str = "") -> Trial:
    report = report_of(checker, fault_count=fault_count)
    failure = None if checker is None else report
    return Trial("broker", "no-dedup", 3, failure, failure, 10, {}, 1.0, frozenset(), complaint)


def test_a_run_with_a_mutation_is_shrunk_and_replays() -> None:
    trial = try_mutation("broker", "no-dedup", seeds_max=8, budget=ShrinkBudget(runs=40))

    assert trial.failure is not None
    assert trial.shrunk is not None
    assert trial.shrunk.checker == trial.failure.checker
    assert len(trial.shrunk.plan.faults) < len(trial.failure.plan.faults)
    assert BROKER.faults_max is not None
    assert len(trial.shrunk.plan.faults) <= BROKER.faults_max
    assert complaint_about(trial) == ""
    assert trial.failure.checker in trial.objectors


def test_a_different_failure_on_replay_does_not_count() -> None:
    assert complaint_about(trial_of("Contiguous")) == (
        "does not replay: NoDuplicates instead of Contiguous"
    )


def test_the_same_failure_after_other_events_does_not_count() -> None:
    assert complaint_about(trial_of("NoDuplicates")) == "does not replay event by event"


@pytest.mark.parametrize(
    "checker", ["NoDuplicates", "HonestStatus", "History.DUPLICATE", "Liveness", "EventBudget"]
)
def test_a_checker_objects(checker: str) -> None:
    assert is_objection(report_of(checker))


@pytest.mark.parametrize("checker", [None, "AttributeError", "UnexpectedServerError"])
def test_an_accidental_error_is_no_objection(checker: str | None) -> None:
    assert not is_objection(report_of(checker))


def test_the_table_lists_found_and_missed_mutations() -> None:
    about = "batches that are sent again are appended again"

    assert (
        table_row(trial_of("NoDuplicates"))
        == f"| broker | no-dedup | 3 | NoDuplicates | 0 | {about} |"
    )
    assert table_row(trial_of(None, complaint="not in 3 seeds")) == (
        f"| broker | no-dedup | **not in 3 seeds** | | | {about} |"
    )
    assert table_row(trial_of("NoDuplicates", fault_count=6, complaint="too many")) == (
        f"| broker | no-dedup | 3 | NoDuplicates | 6 **too many** | {about} |"
    )


def test_the_score_counts_trials_without_a_complaint() -> None:
    caught, missed = trial_of("NoDuplicates"), trial_of(None, complaint="not in 200 seeds")

    assert score([caught, caught]) == ("2 of 2 found, all shrunk to five faults or fewer")
    assert score([caught, missed]) == ("1 of 2 found and shrunk to five faults or fewer")


def test_mutations_are_counted_for_first_and_for_all_objecting_checkers() -> None:
    one = msgspec.structs.replace(
        trial_of("Contiguous"), objectors=frozenset({"Contiguous", "History.UNSEEN"})
    )
    other = msgspec.structs.replace(
        trial_of("History.UNSEEN"), objectors=frozenset({"History.UNSEEN", "History.DUPLICATE"})
    )

    lines = list(objections([one, other, trial_of(None)]))

    assert "| `Contiguous` | 1 | 1 |" in lines
    assert "| `History` | 1 | 2 |" in lines
    assert "| `Liveness` | 0 | 0 |" in lines
