"""Sorted offsets, against a set."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.queue_layer.collections import sorted_offsets
from tidelog.queue_layer.collections.sorted_offsets import SortedOffsets

LIMIT = 60


@given(st.lists(st.integers(0, LIMIT)), st.integers(-1, LIMIT), st.integers(-1, LIMIT))
def test_the_offsets_match_a_set(changes: list[int], first: int, end: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_offsets, "_LENGTH_MAX", 4)
        offsets, model = SortedOffsets(), set[int]()
        for offset in changes:
            if offset in model:
                model.remove(offset)
                offsets.remove(offset)
            else:
                assert offsets.add(offset) == max((o for o in model if o < offset), default=None)
                model.add(offset)
            assert list(offsets) == sorted(model)

        assert offsets.first == min(model, default=None)
        assert offsets.last_at(first) == max((o for o in model if o <= first), default=None)
        assert list(offsets.between(first, end)) == sorted(o for o in model if first < o < end)
        filled = SortedOffsets()
        filled.fill(sorted(model))
        for offset in [*model][: len(model) // 2]:
            filled.remove(offset)
            model.remove(offset)
        assert list(filled) == sorted(model)
        assert filled.first == min(model, default=None)


def test_many_offsets_are_added_and_removed_in_any_order() -> None:
    offsets, order = SortedOffsets(), list(range(10_000))
    random.Random(1).shuffle(order)
    for offset in order:
        offsets.add(offset)
    assert list(offsets) == list(range(10_000))

    for offset in order[:9_000]:
        offsets.remove(offset)

    assert list(offsets) == sorted(order[9_000:])
