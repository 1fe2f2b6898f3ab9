"""The verdict on the costs of a request."""

import pytest

from bench.budget import BUDGET, Cost, breaches, lowered
from bench.calls import Counts
from bench.single_requests import KINDS, WHAT

_BUDGET = Cost(broker=200, client=100, turns=2.0)


def test_every_kind_of_request_has_a_budget() -> None:
    assert BUDGET.keys() == KINDS.keys() == WHAT.keys()


def test_a_cost_within_its_budget_is_no_breach() -> None:
    assert not breaches("send", Cost(broker=200, client=86, turns=1.9), _BUDGET)


def test_a_cost_above_its_budget_is_a_breach() -> None:
    (breach,) = breaches("send", Cost(broker=201, client=100, turns=2.0), _BUDGET)

    assert breach.is_too_high
    assert "send: broker 201.00, and the budget is 200" in breach.text


def test_an_improvement_is_a_breach_until_the_budget_is_lowered() -> None:
    cost = Cost(broker=200, client=100, turns=1.0)
    (breach,) = breaches("send", cost, _BUDGET)

    assert not breach.is_too_high
    assert "lower it to 1.05" in breach.text
    assert not breaches("send", cost, _BUDGET, is_exact=False)


def test_a_kind_whose_costs_vary_has_an_upper_bound_alone() -> None:
    cost = Cost(broker=100, client=50, turns=1.0)

    assert len(breaches("send", cost, _BUDGET)) == 3
    assert not breaches("tail", cost, _BUDGET)
    assert breaches("tail", Cost(broker=201, client=50, turns=1.0), _BUDGET)


@pytest.mark.parametrize("kind", ["send", "work"])
@pytest.mark.parametrize("cost", [1.0, 2.98, 99.0, 100.0, 1130.4])
def test_a_lowered_budget_fits_its_cost(kind: str, cost: float) -> None:
    budget = lowered(kind, cost)

    assert not breaches(kind, Cost(cost, cost, cost), Cost(budget, budget, budget))


def test_costs_are_of_one_request_and_the_most_called_functions_come_first() -> None:
    turn = "trio/_core/_io_epoll.py:EpollIOManager.get_events"
    counts = Counts(10, {"a": 20, turn: 40, "c": 1})

    assert (counts.cost, counts.turns) == (6.1, 4.0)
    assert [line.split()[-1] for line in counts.functions(10)] == [turn, "a"]
