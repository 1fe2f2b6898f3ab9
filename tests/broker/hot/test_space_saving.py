"""Tests of space-saving: its bounds hold for any stream."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.hot.space_saving import CAPACITY, SpaceSaving

Batch = tuple[dict[str, int], float]
"""Occurrences by key, and the weight of each."""

batches = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 20), max_size=10),
        st.sampled_from([1.0, 2.0, 8.0]),
    ),
    max_size=30,
)


def followed(stream: list[Batch], capacity: int) -> tuple[SpaceSaving[str], Counter[str]]:
    """Return the sketch of a stream, and the exact weights."""
    sketch, exact = SpaceSaving[str](capacity), Counter[str]()
    for counts, weight in stream:
        sketch.add(counts, weight)
        exact.update({key: count * weight for key, count in counts.items()})
    return sketch, exact


@given(batches, st.integers(1, 6))
def test_each_count_is_at_most_its_error_above_the_truth(
    stream: list[Batch], capacity: int
) -> None:
    sketch, exact = followed(stream, capacity)

    for key, weight, error in sketch.top(capacity):
        assert weight - error <= exact[key] <= weight


@given(batches, st.integers(1, 6))
def test_keys_without_a_counter_are_below_the_floor_which_is_a_share_of_the_stream(
    stream: list[Batch], capacity: int
) -> None:
    sketch, exact = followed(stream, capacity)
    kept = sketch.top(capacity)

    names = {key for key, _, _ in kept}
    assert all(weight <= sketch.floor for key, weight in exact.items() if key not in names)
    assert sum(weight for _, weight, _ in kept) <= exact.total()
    assert sketch.floor <= exact.total() / capacity
    assert all(error <= sketch.floor for _, _, error in kept)


@given(batches, batches)
def test_scaling_weighs_the_stream_so_far(before: list[Batch], after: list[Batch]) -> None:
    sketch, exact = followed(before, 4)
    sketch.scale(0.5)
    for counts, weight in after:
        sketch.add(counts, weight)

    whole = Counter({key: weight / 2 for key, weight in exact.items()})
    for counts, weight in after:
        whole.update({key: count * weight for key, count in counts.items()})
    for key, weight, error in sketch.top(4):
        assert weight - error <= whole[key] <= weight


def test_a_few_keys_are_counted_exactly() -> None:
    sketch = SpaceSaving[str]()
    sketch.add({"a": 3, "b": 1})
    sketch.add({"b": 5})

    assert sketch.top(1) == [("b", 6, 0)]
    assert sketch.floor == 0


def test_a_key_above_a_sixty_fourth_has_a_counter_among_very_many_keys() -> None:
    sketch = SpaceSaving[int]()
    for first in range(1, 100_001, 1_000):
        sketch.add({0: 20} | dict.fromkeys(range(first, first + 980), 1))

    (heaviest,) = sketch.top(1)
    assert heaviest.key == 0
    assert heaviest.weight - heaviest.error == pytest.approx(2_000)
    assert heaviest.error <= 100_000 / CAPACITY
