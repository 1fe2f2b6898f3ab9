"""Tests of a small swarm with the same runs each time; `make swarm` runs others.

A failure here is caused by the tested change, and not by chance.
"""

import inspect
from collections.abc import Sequence
from inspect import Parameter
from types import FunctionType

import pytest

from tests.simulation.broker.sometimes import PROBES
from tests.simulation.kinds import BROKER, KINDS
from tests.simulation.mutations.mutation import Mutation
from tests.simulation.mutations.registry import MUTATIONS, all_mutations, find_mutation
from tests.simulation.swarm import (
    EASY_PROBES,
    RUNS_FOR_EASY_PROBES,
    Swarm,
    SwarmSize,
    run_seeds,
)

SECONDS = 5.0
RUN_COUNT = 12
_VARIADIC = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
_POSITIONAL = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
MUTATION_COUNT = 269
TRIAL_COUNT = 286
"""Number of trials; some mutations must be found by several kinds of runs."""


def test_no_run_of_a_small_swarm_breaks_a_promise() -> None:
    report = Swarm(BROKER, SwarmSize(seeds=RUN_COUNT, seconds=SECONDS), on_run=lambda _: None).run()

    assert report.failure is None, (
        f"seed {report.failure.plan.seed} breaks a promise: {report.failure.problem}\n"
        f"replay it: make sim SEED={report.failure.plan.seed} SECONDS={SECONDS:g}\n"
        "shrink its plan, and keep that:"
        f" make swarm SEEDS=1 FIRST={report.failure.plan.seed} SECONDS={SECONDS:g}"
    )
    assert report.run_count == RUN_COUNT >= RUNS_FOR_EASY_PROBES
    tame = [probe for probe in EASY_PROBES if probe in report.missed_probes]
    assert not tame, f"{report.run_count} runs never reached {tame}; they have too few faults"


def test_easy_probes_are_probes() -> None:
    assert set(EASY_PROBES) <= PROBES.keys()


@pytest.mark.parametrize("mutation", all_mutations(), ids=lambda mutation: mutation.name)
def test_a_mutation_is_removed_after_its_run(mutation: Mutation) -> None:
    before = [owner.__dict__[attribute] for owner, attribute, _ in mutation.patches]

    with mutation.applied():
        applied = [owner.__dict__[attribute] for owner, attribute, _ in mutation.patches]

    assert applied == [value for _, _, value in mutation.patches]
    assert [owner.__dict__[attribute] for owner, attribute, _ in mutation.patches] == before


def test_every_kind_has_mutations_with_unique_names() -> None:
    named = [mutation for found in MUTATIONS.values() for mutation in found]

    assert MUTATIONS.keys() == KINDS.keys()
    assert len(all_mutations()) == MUTATION_COUNT
    assert len(named) == TRIAL_COUNT
    assert all(find_mutation(mutation.name) is mutation for mutation in named)


@pytest.mark.parametrize("name", ["groups", "metadata", "isr"])
def test_a_kind_without_plans_runs_and_replays(name: str) -> None:
    kind = KINDS[name]

    first, second = run_seeds(name, [1, 2], kind.seconds)

    assert first.checker is None, first.problem
    assert kind.run(first.plan) == first
    assert second.plan.seed == "2"


@pytest.mark.parametrize("mutation", all_mutations(), ids=lambda mutation: mutation.name)
def test_a_mutation_has_the_signature_of_its_original(mutation: Mutation) -> None:
    for owner, attribute, stand_in in mutation.patches:
        original = owner.__dict__[attribute]

        assert misfit(function_of(original), function_of(stand_in)) == "", attribute


def function_of(value: object) -> object:
    """Return the function behind a property or a static or class method."""
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", value)


def misfit(original: object, stand_in: object) -> str:
    """Return the argument of `original` that its stand-in lacks, empty if there is none."""
    if not (isinstance(original, FunctionType) and isinstance(stand_in, FunctionType)):
        return ""  # A value, or a class with `__call__`.
    taken = list(inspect.signature(stand_in).parameters.values())
    names = {parameter.name for parameter in taken}
    kinds = {parameter.kind for parameter in taken}
    positional = [each for each in taken if each.kind in _POSITIONAL]
    for place, parameter in enumerate(inspect.signature(original).parameters.values()):
        by_position = parameter.kind in _POSITIONAL
        if by_position and place >= len(positional) and Parameter.VAR_POSITIONAL not in kinds:
            return f"{parameter.name} by position"
        takes_it = parameter.name in names or Parameter.VAR_KEYWORD in kinds
        if not by_position and not takes_it:
            return f"{parameter.name} by keyword"
    return _demanded_besides(original, taken)


def _demanded_besides(original: FunctionType, taken: Sequence[Parameter]) -> str:
    """Return an argument that a stand-in requires and callers of `original` do not pass."""
    given = list(inspect.signature(original).parameters.values())
    if any(each.kind in _VARIADIC for each in given):
        return ""
    by_position = sum(each.kind in _POSITIONAL for each in given)
    for place, parameter in enumerate(taken):
        is_given = (
            place < by_position
            if parameter.kind in _POSITIONAL
            else parameter.name in {each.name for each in given}
        )
        if (
            parameter.default is Parameter.empty
            and parameter.kind not in _VARIADIC
            and not is_given
        ):
            return f"{parameter.name} besides"
    return ""


def test_a_stand_in_with_a_narrower_signature_is_found() -> None:
    def original(first: int, second: int, *, third: int) -> None: ...
    def by_keyword(first: int, *, second: int, third: int) -> None: ...
    def without_third(first: int, second: int) -> None: ...
    def with_fourth(first: int, second: int, *, third: int, fourth: int) -> None: ...
    def anything(*_: object, **__: object) -> None: ...

    assert misfit(original, by_keyword) == "second by position"
    assert misfit(original, without_third) == "third by keyword"
    assert misfit(original, with_fourth) == "fourth besides"
    assert misfit(original, anything) == misfit(original, original) == ""
