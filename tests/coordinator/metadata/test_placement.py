"""Placement of replicas: spread, balanced and deterministic."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.metadata.placement import (
    PlacementCandidate,
    check_assignment,
    check_replicas,
    place_replicas,
)
from tidelog.wire.errors import InvalidTopicError, LeaderNotAvailableError


def brokers(*domains: str) -> list[PlacementCandidate]:
    return [PlacementCandidate(node, domain) for node, domain in enumerate(domains, 1)]


def place(
    candidates: list[PlacementCandidate], partitions: int, factor: int
) -> list[tuple[int, ...]]:
    return place_replicas(candidates, partition_count=partitions, replication_factor=factor)


def spread(counter: Counter[int], candidates: list[PlacementCandidate]) -> int:
    counts = [counter[candidate.node_id] for candidate in candidates]
    return max(counts) - min(counts)


@given(st.integers(1, 9), st.integers(1, 40), st.data())
def test_placement_balances_leaders_and_replicas(
    broker_count: int, partitions: int, data: st.DataObject
) -> None:
    candidates = brokers(*[""] * broker_count)
    factor = data.draw(st.integers(1, broker_count))

    assignments = place(candidates, partitions, factor)

    assert assignments == place(candidates[::-1], partitions, factor), "it is not deterministic"
    assert len(assignments) == partitions
    assert all(len(set(replicas)) == len(replicas) == factor for replicas in assignments)
    assert spread(Counter(replicas[0] for replicas in assignments), candidates) <= 1
    assert spread(Counter(node for nodes in assignments for node in nodes), candidates) <= 2


@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 30))
def test_placement_spreads_replicas_over_racks(
    domain_count: int, brokers_each: int, partitions: int
) -> None:
    candidates = brokers(*[f"rack-{n % domain_count}" for n in range(domain_count * brokers_each)])
    domain = {candidate.node_id: candidate.rack for candidate in candidates}
    factor = min(3, len(candidates))

    assignments = place(candidates, partitions, factor)

    for replicas in assignments:
        assert len({domain[node] for node in replicas}) == min(factor, domain_count)
    assert spread(Counter(replicas[0] for replicas in assignments), candidates) <= 1
    assert spread(Counter(node for nodes in assignments for node in nodes), candidates) <= 2


def test_a_broker_without_a_rack_is_a_rack_of_its_own() -> None:
    candidates = brokers("", "", "rack", "rack")

    for replicas in place(candidates, 20, 3):
        assert not {3, 4} <= set(replicas)


def test_of_racks_with_as_many_replicas_the_least_loaded_broker_gets_the_next() -> None:
    loaded = PlacementCandidate(2, "a", replica_count=10, preferred_count=10)
    candidates = [PlacementCandidate(1, "a"), loaded, *brokers("", "", "b", "b")[2:]]

    (replicas,) = place(candidates, 1, 3)

    assert set(replicas) == {1, 3, 4}


@pytest.mark.parametrize(("count", "factor"), [(4, 2), (5, 3), (6, 3), (10, 3)])
def test_the_leaderships_of_a_failed_broker_are_spread_over_many(count: int, factor: int) -> None:
    candidates = brokers(*[""] * count)

    assignments = place(candidates, 60 * count, factor)

    for failed in range(1, count + 1):
        heirs = Counter(nodes[1] for nodes in assignments if nodes[0] == failed)
        assert len(heirs) == count - 1
        assert max(heirs.values()) <= 2 * 60 / (count - 1)


def test_a_broker_is_alive_and_without_replicas_unless_its_candidate_says_otherwise() -> None:
    empty = PlacementCandidate(1, "", is_live=True, replica_count=0, preferred_count=0)

    assert PlacementCandidate(1, "") == empty


def test_placement_prefers_a_new_broker_until_loads_are_equal() -> None:
    old = [PlacementCandidate(node, "", replica_count=30, preferred_count=10) for node in (1, 2, 3)]

    assignments = place([*old, PlacementCandidate(4, "")], 40, 1)

    assert Counter(nodes[0] for nodes in assignments) == {4: 18, 1: 8, 2: 7, 3: 7}


def test_fenced_brokers_get_replicas_only_without_enough_live_ones() -> None:
    dead = PlacementCandidate(1, "", is_live=False)
    live = [PlacementCandidate(node, "") for node in (2, 3, 4)]

    assert all(1 not in nodes for nodes in place([dead, *live], 20, 3))
    assert all(nodes[-1] == 1 for nodes in place([dead, *live], 20, 4))


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(InvalidTopicError, match="4 replicas are not possible: there are 3 broke"):
        place(brokers("", "", ""), 1, 4)
    with pytest.raises(InvalidTopicError, match="0 replicas"):
        place(brokers(""), 1, 0)


def test_placement_without_a_live_broker_is_refused() -> None:
    with pytest.raises(LeaderNotAvailableError, match="no live broker can lead"):
        place([PlacementCandidate(1, "", is_live=False)], 1, 1)


def test_a_valid_manual_assignment_is_accepted() -> None:
    check_assignment([[1, 2], [2, 1]], 2, {1: True, 2: False})
    check_replicas(0, [1, 2], {1: None, 2: None})


def test_a_manual_assignment_above_the_maximum_replication_factor_is_refused() -> None:
    with pytest.raises(InvalidTopicError, match="16 replicas are too many, 15 are the most"):
        check_replicas(0, range(16), dict.fromkeys(range(16)))
