"""Results of the simulator: their files, and the page that is generated from them."""

from pathlib import Path

import msgspec
import pytest

from tests.paths import ROOT
from tests.simulation.broker.plans import Plan, draw_plan
from tests.simulation.kinds import BROKER, KINDS
from tests.simulation.mutations.measure import Trial
from tests.simulation.report import RunReport
from tests.simulation.results.page import describe
from tests.simulation.results.records import (
    MUTATIONS,
    SWARMS,
    Find,
    MutationResult,
    State,
    SwarmResult,
    append,
    newest,
    read,
    result_of_swarm,
    result_of_trial,
    state_now,
)
from tests.simulation.swarm import Swarm, SwarmReport, SwarmSize

PAGE = ROOT / "docs" / "simulation-results.md"
STATE = State(date="2026-11-25", commit="377597a6")


def failure(checker: str) -> RunReport[Plan]:
    return RunReport(draw_plan(7, 1.0), checker, "a | b", {}, {}, 1.0, "")


def test_the_page_is_as_the_files() -> None:
    page = describe(read(SWARMS, SwarmResult), read(MUTATIONS, MutationResult))

    assert page == PAGE.read_text(encoding="utf-8"), "run: make generate"


def test_every_result_is_of_a_kind_that_exists() -> None:
    kinds = {each.kind for each in read(SWARMS, SwarmResult)}
    kinds |= {each.kind for each in read(MUTATIONS, MutationResult)}

    assert kinds <= KINDS.keys()


def test_a_swarm_is_recorded_with_its_find(tmp_path: Path) -> None:
    report = SwarmReport(BROKER, run_count=12, failed_count=2, simulated_s=61.25)
    report.counts.update(events=400, crashes=3)
    report.run_counts_by_probe.update({"torn tail": 9})
    report.failure = failure("Liveness")
    result = result_of_swarm(report, STATE, first=7, seconds=20.0)
    path = tmp_path / "swarms.jsonl"

    append(path, result)
    append(path, result)

    assert read(path, SwarmResult) == [result, result]
    assert (result.kind, result.first, result.clean, result.seconds) == ("broker", 7, 10, 20.0)
    assert result.counts == {"events": 400, "crashes": 3}
    assert result.probes.keys() == BROKER.probes.keys()
    assert (result.probes["torn tail"], result.probes["clean tail"]) == (9, 0)
    assert result.find == Find(seed="7", checker="Liveness")
    row = "| 2026-11-25 | `broker` | 377597a6 | 7 | 20 | 10 | 61 | 7 `Liveness` | |"
    assert row in describe([result], [])


def test_a_kind_with_a_fixed_duration_has_no_seconds() -> None:
    kind = KINDS["groups"]
    report = Swarm(kind, SwarmSize(seeds=1, workers=1), on_run=lambda _: None).run()

    result = result_of_swarm(report, STATE, first=0, seconds=60.0)

    assert (result.clean, result.seconds, result.simulated_s) == (1, None, None)
    assert result.find is None


def test_the_newest_result_of_a_mutation_counts() -> None:
    missed = Trial("broker", "no-dedup", 200, None, None, 0, {}, 1.0, complaint="not in 200 seeds")
    found = failure("NoDuplicates")
    caught = Trial("broker", "no-dedup", 3, found, found, 10, {}, 1.0)
    first, second = (result_of_trial(each, STATE) for each in (missed, caught))

    assert newest([first, second]) == {("broker", "no-dedup"): second}
    assert "| no-dedup | **not in 200** | | | 2026-11-25 377597a6 |" in describe([], [first])
    left = len(found.plan.faults)
    page = describe([], [first, second])
    assert f"| no-dedup | 3 | NoDuplicates | {left} | 2026-11-25 377597a6 |" in page
    count = len(KINDS["broker"].mutations)
    assert f"| `broker` | 0 | | | {count} | 1 | 0 | {count - 1} |" in page


def test_a_find_with_a_problem_does_not_count_as_found() -> None:
    result = MutationResult(
        state=STATE, kind="broker", name="no-dedup", seeds=3, found_by="A", problem="no replay"
    )

    page = describe([], [result])

    assert "| no-dedup | 3 **no replay** | A | |" in page
    count = len(KINDS["broker"].mutations)
    assert f"| `broker` | 0 | | | {count} | 0 | 1 | {count - 1} |" in page


def test_a_misspelled_field_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "swarms.jsonl"
    path.write_text('{"state":{"date":"2026-11-25"},"kind":"broker","claen":1}\n', "utf-8")

    with pytest.raises(msgspec.ValidationError, match="claen"):
        read(path, SwarmResult)


def test_the_state_names_a_commit_and_a_day() -> None:
    state = state_now()

    assert len(state.commit.removesuffix("+")) >= 8
    assert state.date.count("-") == 2
