"""A small swarm in every run of the tests; `make swarm` lives longer."""

import pytest

from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS, find_mutant
from tests.simulation.plans import draw_plan
from tests.simulation.swarm import Swarm, SwarmSize, live_plan

BUDGET_S = 20.0
CANARY_SEEDS = 8


@pytest.mark.timeout(240)
def test_no_life_of_a_small_swarm_breaks_a_promise() -> None:
    report = Swarm(SwarmSize(seconds=15.0, budget_s=BUDGET_S), on_life=lambda _: None).run()

    assert report.life_count > 0
    assert report.failure is None, (
        f"seed {report.failure.plan.seed} breaks a promise: {report.failure.problem}\n"
        f"replay it: make sim SEED={report.failure.plan.seed} SECONDS=15"
    )


@pytest.mark.parametrize("name", ["flush-does-nothing", "no-dedup"])
def test_a_planted_bug_is_caught(name: str) -> None:
    lives = (live_plan(draw_plan(seed, 10.0), name) for seed in range(CANARY_SEEDS))

    assert any(life.checker is not None for life in lives)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_gone_after_its_life(mutant: Mutant) -> None:
    before = [owner.__dict__[attribute] for owner, attribute, _ in mutant.patches]

    with mutant.planted():
        planted = [owner.__dict__[attribute] for owner, attribute, _ in mutant.patches]

    assert planted == [value for _, _, value in mutant.patches]
    assert [owner.__dict__[attribute] for owner, attribute, _ in mutant.patches] == before


def test_planted_bugs_have_different_names() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 15
    assert find_mutant("no-dedup") in MUTANTS
