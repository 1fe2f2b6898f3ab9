"""Small collections: rings of indices, redeliverable messages, links of groups."""

# Counts the blocks in memory.
# pyright: reportPrivateUsage=false

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.queue_layer.collections.group_links import BLOCK_OFFSETS, NO_LINK, InMemoryGroupLinks
from tidelog.queue_layer.collections.index_list import IndexList
from tidelog.queue_layer.collections.redeliverable import RedeliverableMessages


def test_numbers_are_iterated_in_insertion_order() -> None:
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


def test_an_iteration_ends_when_its_current_number_is_removed() -> None:
    ring = IndexList()
    for number in (3, 1, 2):
        ring.add(number)
    walk = iter(ring)
    assert next(walk) == 3

    ring.discard(3)

    assert list(walk) == []


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 8))))
def test_the_index_list_matches_a_list_model(steps: list[tuple[bool, int]]) -> None:
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


def test_the_longest_visible_message_is_the_first() -> None:
    returned = RedeliverableMessages()
    returned.add(0, 5, 300)
    returned.add(5, 9, 100)
    returned.add(20, 21, 200)

    assert list(returned) == [(5, 9), (20, 21), (0, 5)]
    assert len(returned) == 3


def test_removing_the_middle_of_a_range_leaves_both_ends() -> None:
    returned = RedeliverableMessages()
    returned.add(0, 5, 100)
    returned.add(5, 9, 50)

    returned.remove(2, 6)

    assert list(returned) == [(6, 9), (0, 2)]
    returned.remove(0, 100)
    assert list(returned) == []
    returned.remove(0, 100)


def test_an_offset_has_the_number_it_was_given_last() -> None:
    links = InMemoryGroupLinks()
    links.put(5, 1)
    links.put(5, 2)
    links.put(3, 2**63 - 1)

    assert links.get(5) == 2
    assert links.get(3) == 2**63 - 1
    assert links.get(4) == links.get(6) == links.get(10**9) == NO_LINK


def test_a_block_is_dropped_when_the_low_water_mark_has_passed_it() -> None:
    links = InMemoryGroupLinks()
    for offset in range(0, 4 * BLOCK_OFFSETS, BLOCK_OFFSETS):
        links.put(offset, 1)

    links.drop_below(2 * BLOCK_OFFSETS - 1)
    assert len(links._blocks) == 3
    links.drop_below(2 * BLOCK_OFFSETS)
    assert len(links._blocks) == 2
    links.drop_below(10**15)
    assert len(links._blocks) == 0


def test_a_dropped_block_stores_no_links() -> None:
    links = InMemoryGroupLinks()
    links.drop_below(BLOCK_OFFSETS)
    links.put(1, 1)

    assert links.get(1) == NO_LINK
    assert len(links._blocks) == 0


def test_the_low_water_mark_may_jump_over_many_blocks() -> None:
    links = InMemoryGroupLinks()
    links.put(10**15, 1)
    links.drop_below(10**15)

    assert links.get(10**15) == 1


def test_group_links_match_a_dict_model() -> None:
    random, links, model = Random(1), InMemoryGroupLinks(), dict[int, int]()
    for number in range(5_000):
        offset = random.randrange(6 * BLOCK_OFFSETS)
        links.put(offset, number)
        model[offset] = number

    assert all(links.get(o) == model.get(o, NO_LINK) for o in range(6 * BLOCK_OFFSETS))
