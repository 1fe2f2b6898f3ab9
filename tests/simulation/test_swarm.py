"""A small swarm in every run of the tests, always of the same lives; `make swarm` looks for others.

What fails here was broken by the change that is being tested, and not by chance.
"""

import pytest

from tests.simulation.broker.plans import draw_plan
from tests.simulation.broker.sometimes import PROBES
from tests.simulation.kinds import BROKER, KINDS, find_mutant
from tests.simulation.mutations.measure import is_objection
from tests.simulation.mutations.mutant import Mutant
from tests.simulation.swarm import (
    EASY_PROBES,
    LIVES_FOR_EASY_PROBES,
    Swarm,
    SwarmSize,
)

SECONDS = 15.0
LIFE_COUNT = 24
CANARY_SEEDS = 8


def test_no_life_of_a_small_swarm_breaks_a_promise() -> None:
    report = Swarm(
        BROKER, SwarmSize(seeds=LIFE_COUNT, seconds=SECONDS), on_life=lambda _: None
    ).run()

    assert report.failure is None, (
        f"seed {report.failure.plan.seed} breaks a promise: {report.failure.problem}\n"
        f"replay it: make sim SEED={report.failure.plan.seed} SECONDS={SECONDS:g}\n"
        "make its plan smaller, and keep that:"
        f" make swarm SEEDS=1 FIRST={report.failure.plan.seed} SECONDS={SECONDS:g}"
    )
    assert report.life_count == LIFE_COUNT >= LIVES_FOR_EASY_PROBES
    tame = [probe for probe in EASY_PROBES if probe in report.missed_probes]
    assert not tame, f"{report.life_count} lives never reached {tame}; they are too tame"


def test_what_the_smallest_swarm_must_reach_are_probes() -> None:
    assert set(EASY_PROBES) <= PROBES.keys()


@pytest.mark.parametrize("name", ["flush-does-nothing", "no-dedup"])
def test_a_planted_bug_is_caught(name: str) -> None:
    lives = (BROKER.live_plan(draw_plan(seed, 10.0), name) for seed in range(CANARY_SEEDS))

    assert any(is_objection(life) for life in lives)


MUTANTS = [mutant for kind in KINDS.values() for mutant in kind.mutants]


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
