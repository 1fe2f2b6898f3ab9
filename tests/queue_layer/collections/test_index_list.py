"""Numbers that take turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.queue_layer.collections.index_list import IndexList


def test_numbers_come_in_the_order_in_which_they_were_added() -> None:
    ring = IndexList()
    for number in (3, 1, 2):
        ring.add(number)

    assert list(ring) == [3, 1, 2]


def test_a_number_is_there_once() -> None:
    ring = IndexList()
    ring.add(1)

    with pytest.raises(AssertionError):
        ring.add(1)
    assert list(ring) == [1]


def test_a_walk_ends_where_a_number_left() -> None:
    ring = IndexList()
    for number in (3, 1, 2):
        ring.add(number)
    walk = iter(ring)
    assert next(walk) == 3

    ring.discard(3)

    assert list(walk) == []


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 8))))
def test_it_is_a_list_that_numbers_leave_from_anywhere(steps: list[tuple[bool, int]]) -> None:
    ring, model = IndexList(), list[int]()
    for is_add, number in steps:
        assert (number in ring) == (number in model)
        if number in model and not is_add:
            model.remove(number)
        if number not in model and is_add:
            model.append(number)
            ring.add(number)
        elif not is_add:
            ring.discard(number)
        assert list(ring) == model
