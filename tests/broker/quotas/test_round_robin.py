"""Deficit round robin: fair turns of principals, whatever they cost and however many wait."""

from collections import Counter
from random import Random

import pytest

from tidelog.broker.quotas.round_robin import QUANTUM_S, DeficitRoundRobin


def test_a_principal_with_many_connections_gets_one_share() -> None:
    turns: DeficitRoundRobin[str] = DeficitRoundRobin()
    for number in range(500):
        turns.add("flood", f"flood {number}")
    turns.add("alice", "alice")

    first = turns.next_round()

    assert "alice" in first
    assert len(first) <= 17


def test_turns_of_one_principal_are_in_their_order() -> None:
    turns: DeficitRoundRobin[int] = DeficitRoundRobin()
    for number in range(40):
        turns.add("alice", number)

    granted = [number for _ in range(10) for number in turns.next_round()]

    assert granted == list(range(40))
    assert len(turns) == 0


def test_a_cancelled_turn_is_not_given() -> None:
    turns: DeficitRoundRobin[str] = DeficitRoundRobin()
    turns.add("alice", "first")
    turns.add("alice", "second")

    turns.discard("alice", "first")

    assert turns.next_round() == ["second"]
    assert turns.next_round() == []


@pytest.mark.parametrize("seed", range(10))
def test_principals_get_equal_time_although_their_turns_cost_differently(seed: int) -> None:
    random = Random(seed)
    turns: DeficitRoundRobin[str] = DeficitRoundRobin()
    costs = {"cheap": QUANTUM_S / 10, "dear": QUANTUM_S * 4, "usual": QUANTUM_S / 2}
    for key in costs:
        for _ in range(random.randrange(20, 60)):
            turns.add(key, key)
    spent: Counter[str] = Counter()
    for _ in range(3000):
        for key in turns.next_round():
            turns.took(key, costs[key])
            spent[key] += int(costs[key] * 1e6)
            turns.add(key, key)

    assert max(spent.values()) <= 1.25 * min(spent.values())


def test_a_principal_that_waits_is_served_in_every_round_without_debt() -> None:
    turns: DeficitRoundRobin[str] = DeficitRoundRobin()
    for _ in range(300):
        turns.add("flood", "flood")
    for _ in range(100):
        turns.add("alice", "alice")
        granted = turns.next_round()
        assert "alice" in granted
        for key in granted:
            turns.took(key, QUANTUM_S / 20)
            if key == "flood":
                turns.add(key, key)


def test_a_principal_has_credit_for_its_quantum_and_while_none_of_its_turns_waits() -> None:
    turns: DeficitRoundRobin[str] = DeficitRoundRobin()
    turns.took("alice", QUANTUM_S * 0.9)
    assert turns.has_credit("alice")
    turns.took("alice", QUANTUM_S * 0.9)
    assert not turns.has_credit("alice")
    assert turns.has_credit("bob")

    turns.add("alice", "alice")
    turns.add("bob", "bob")
    assert not turns.has_credit("bob")
    turns.clear()  # No effect while turns wait.
    assert turns.next_round() == ["alice", "bob"]
    turns.clear()
    assert turns.has_credit("alice")
