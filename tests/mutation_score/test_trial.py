"""Trials of mutants, in processes of their own."""

from pathlib import Path

from tests.mutation_score.coverage_map import CoverageMap
from tests.mutation_score.trial import Outcome, try_tests
from tests.paths import ROOT

FILE = "isr/leader.py"
MODULE = "tidelog.isr.leader"
TEST = "tests/isr/test_leader.py::test_under_fsync_only_durable_records_are_committed"


def outcome_of(before: str, after: str, log: Path) -> Outcome:
    source = (ROOT / FILE).read_text(encoding="utf-8")
    assert before in source
    return try_tests(MODULE, source.replace(before, after), [[TEST]], cpu_s=60, log=log)


def test_a_trial_runs_the_tests_with_the_mutated_module(tmp_path: Path) -> None:
    log = tmp_path / "log"
    check = "self.durability is Durability.FSYNC"

    assert outcome_of(check, check, log) is Outcome.SURVIVED
    assert "1 passed" in log.read_text(encoding="utf-8")
    assert outcome_of(check, check.replace("is", "is not"), log) is Outcome.KILLED
    assert "assert 5 == 3" in log.read_text(encoding="utf-8")


def test_a_module_that_cannot_be_imported_is_no_mutant(tmp_path: Path) -> None:
    assert outcome_of("@final", "@finale", tmp_path / "log") is Outcome.STILLBORN


def test_the_tests_of_a_line_are_those_that_execute_it_and_its_namesakes_come_first() -> None:
    slow, fast = "tests/isr/test_leader.py::a", "tests/isr/test_leader.py::b"
    other, reader = "tests/isr/test_followers.py::c", "tests/isr/test_page.py::d"
    lines = CoverageMap(
        {slow: 2.0, fast: 1.0, other: 0.5, reader: 0.1},
        {FILE: {10: [other, slow], 11: [slow, fast, other]}},
    )

    assert lines.tests_of(FILE, 10) == [[slow], [other]]
    assert lines.tests_of(FILE, 11) == [[fast, slow], [other]]
    assert lines.tests_of(FILE, 1) == [[fast, slow], [other], [reader]], "an import executes it"
    assert lines.tests_of("isr/other.py", 1) == [[reader, other, fast, slow]]


def test_a_parametrized_test_runs_although_the_mutation_changes_its_id(tmp_path: Path) -> None:
    source = (ROOT / "coordinator/raft/messages.py").read_text(encoding="utf-8")
    function = "tests/coordinator/raft/test_messages.py::test_an_entry_of_an_earlier_version_can_be"

    outcome = try_tests(
        "tidelog.coordinator.raft.messages",
        source.replace("COMMAND = 0", "COMMAND = -1"),
        [[f"{function}_read[0-0]"]],
        cpu_s=60,
        log=tmp_path / "log",
    )

    assert outcome is Outcome.KILLED
