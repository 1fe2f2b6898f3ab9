"""Assignors: even assignments with as few moves as possible (I77)."""

from collections import Counter
from collections.abc import Sequence
from math import ceil
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.groups.assignors import ASSIGNORS, RANGE, UNIFORM, Reader, assign
from tidelog.coordinator.groups.balanced_assignment import balance
from tidelog.coordinator.groups.partitions import Partition

A, B, C = (bytes([number]) * 16 for number in range(3))

partition_counts = st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 12))
wanted_topics = st.lists(st.sampled_from([A, B, C]), unique=True).map(sorted)


def readers(*topics: Sequence[bytes]) -> list[Reader]:
    return [Reader(topic_ids, ()) for topic_ids in topics]


def again(before: Sequence[Reader], assigned: list[list[Partition]]) -> list[Reader]:
    """Return the same readers with their assigned partitions."""
    return [Reader(reader.topic_ids, held) for reader, held in zip(before, assigned, strict=True)]


def moved_count(before: list[list[Partition]], after: list[list[Partition]]) -> int:
    """Count partitions that another reader had before."""
    owner = {partition: index for index, held in enumerate(before) for partition in held}
    return sum(
        owner.get(partition, index) != index
        for index, held in enumerate(after)
        for partition in held
    )


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(counts=partition_counts, wanted=st.lists(wanted_topics, min_size=1, max_size=6))
def test_every_partition_is_assigned_to_one_subscriber(
    assignor: str, counts: dict[bytes, int], wanted: list[list[bytes]]
) -> None:
    assigned = assign(assignor, readers(*wanted), counts)

    given_out = Counter(partition for held in assigned for partition in held)
    assert given_out == Counter(
        (topic_id, number)
        for topic_id in counts
        if any(topic_id in topics for topics in wanted)
        for number in range(counts[topic_id])
    )
    for topics, held in zip(wanted, assigned, strict=True):
        assert {topic_id for topic_id, _ in held} <= set(topics)


@given(counts=partition_counts, size=st.integers(1, 8))
def test_numbers_of_partitions_differ_by_one_at_most(counts: dict[bytes, int], size: int) -> None:
    assigned = assign(UNIFORM, readers(*[sorted(counts)] * size), counts)

    lengths = [len(held) for held in assigned]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.invariant("I77")
@given(counts=partition_counts, size=st.integers(1, 8))
def test_a_joining_member_moves_no_more_than_its_share(counts: dict[bytes, int], size: int) -> None:
    """Adding one member to N moves at most ceil(P / (N + 1)) partitions."""
    topics = sorted(counts)
    before = assign(UNIFORM, readers(*[topics] * size), counts)

    after = assign(UNIFORM, [*again(readers(*[topics] * size), before), Reader(topics, ())], counts)

    assert moved_count(before, after) <= ceil(sum(counts.values()) / (size + 1))
    assert all(set(new) <= set(old) for old, new in zip(before, after, strict=False))


@given(counts=partition_counts, size=st.integers(2, 8), leaver=st.integers(0, 7))
def test_when_a_reader_leaves_only_its_own_partitions_move(
    counts: dict[bytes, int], size: int, leaver: int
) -> None:
    all_readers = readers(*[sorted(counts)] * size)
    before = assign(UNIFORM, all_readers, counts)
    index = leaver % size
    stay = [reader for place, reader in enumerate(again(all_readers, before)) if place != index]

    after = assign(UNIFORM, stay, counts)

    assert all(set(old.held) <= set(new) for old, new in zip(stay, after, strict=True))


@given(counts=partition_counts, wanted=st.lists(wanted_topics, min_size=1, max_size=6))
def test_assigning_again_moves_nothing(counts: dict[bytes, int], wanted: list[list[bytes]]) -> None:
    before = assign(UNIFORM, readers(*wanted), counts)

    after = assign(UNIFORM, again(readers(*wanted), before), counts)

    assert list(map(set, after)) == list(map(set, before))


def spread_of_the_most_even(wanted: list[list[bytes]], counts: dict[bytes, int]) -> tuple[int, ...]:
    """Return the loads of the most even assignment, found by trying all of them."""
    partitions = [topic_id for topic_id in sorted(counts) for _ in range(counts[topic_id])]
    found = {tuple([0] * len(wanted))}
    for topic_id in partitions:
        takers = [index for index, topics in enumerate(wanted) if topic_id in topics]
        if takers:
            found = {
                tuple(load + (place == taker) for place, load in enumerate(loads))
                for loads in found
                for taker in takers
            }
    return min(
        (tuple(sorted(loads)) for loads in found), key=lambda loads: sum(n * n for n in loads)
    )


@given(
    counts=st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 4)),
    wanted=st.lists(wanted_topics, min_size=1, max_size=4),
    held=st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(0, 4)), unique=True),
)
def test_the_uniform_assignment_is_the_most_even_for_any_subscriptions(
    counts: dict[bytes, int], wanted: list[list[bytes]], held: list[Partition]
) -> None:
    before = [Reader(wanted[0], held), *readers(*wanted[1:])]

    assigned = assign(UNIFORM, before, counts)

    loads = tuple(sorted(len(partitions) for partitions in assigned))
    best = spread_of_the_most_even(wanted, counts)
    assert sum(load * load for load in loads) == sum(load * load for load in best)


def test_a_partition_can_move_through_a_reader_in_the_middle() -> None:
    held = [[(A, number) for number in range(4)], [(B, 0), (B, 1)], []]
    before = [Reader(topics, has) for topics, has in zip([[A], [A, B], [B]], held, strict=True)]

    after = assign(UNIFORM, before, {A: 4, B: 2})

    assert [len(partitions) for partitions in after] == [2, 2, 2]
    assert after[2] == [(B, 0), (B, 1)]


def test_the_reader_with_most_partitions_keeps_one_more_than_others() -> None:
    held = [[(A, 0), (A, 1)], [(A, 2), (A, 3), (A, 4)], [(A, 5), (A, 6)]]

    after = assign(UNIFORM, [Reader([A], has) for has in held], {A: 7})

    assert after == held


def test_a_topic_is_spread_over_all_readers_when_one_joins() -> None:
    topics, counts = [A, B], {A: 8, B: 8}
    before = assign(UNIFORM, readers(topics), counts)

    after = assign(UNIFORM, [*again(readers(topics), before), Reader(topics, ())], counts)

    for held in after:
        assert Counter(topic_id for topic_id, _ in held) == {A: 4, B: 4}


@given(count=st.integers(0, 12), size=st.integers(1, 6))
def test_the_range_assignor_colocates_partitions_of_one_number(count: int, size: int) -> None:
    assigned = assign(RANGE, readers(*[[A, B]] * size), {A: count, B: count})

    for held in assigned:
        assert [n for topic_id, n in held if topic_id == A] == [
            n for topic_id, n in held if topic_id == B
        ]


def test_ranges_follow_the_order_of_readers() -> None:
    assigned = assign(RANGE, readers([A], [A], [A]), {A: 7})

    assert assigned == [[(A, 0), (A, 1), (A, 2)], [(A, 3), (A, 4)], [(A, 5), (A, 6)]]


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_without_readers_nothing_is_assigned(assignor: str) -> None:
    assert assign(assignor, [], {A: 3}) == []


@pytest.mark.parametrize("different", [1, 3])
def test_an_assignment_of_a_thousand_members_and_ten_thousand_partitions_is_fast(
    different: int,
) -> None:
    topics = [bytes([number]) * 16 for number in range(10)]
    counts = dict.fromkeys(topics, 1000)
    all_readers = [Reader(topics[number % different :], ()) for number in range(1000)]

    began = process_time()
    assigned = assign(UNIFORM, all_readers, counts)
    took = process_time() - began

    assert {len(held) for held in assigned} == {10}
    assert took < 1.0, "it takes about 20 ms; an algorithm that needs 1 s grows too fast"


def test_the_least_wanted_topics_are_assigned_first() -> None:
    shared = balance([[A], [A, B]], [[], []], {A: 2, B: 2})

    assert shared == [[(A, 0), (A, 1)], [(B, 0), (B, 1)]]


def test_held_partitions_stay_while_the_assignment_is_even() -> None:
    held = [[(A, 1)], [(A, 0), (B, 0)]]

    assert balance([[A], [A, B]], held, {A: 2, B: 1}) == held


def test_unsubscribed_and_deleted_partitions_are_unassigned() -> None:
    shared = balance([[A], [B]], [[(B, 0), (A, 5)], []], {A: 1, B: 1})

    assert shared == [[(A, 0)], [(B, 0)]]


def test_no_member_gets_an_unsubscribed_topic() -> None:
    shared = balance([[A], [B]], [[], []], {A: 9, B: 1})

    assert [len(partitions) for partitions in shared] == [9, 1]
