"""A number for each offset, in memory."""

from random import Random

from tidelog.queue_layer.collections.group_links import BLOCK_OFFSETS, NO_LINK, InMemoryGroupLinks


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
    assert links.block_count() == 3
    links.drop_below(2 * BLOCK_OFFSETS)
    assert links.block_count() == 2
    links.drop_below(10**15)
    assert links.block_count() == 0


def test_what_was_dropped_is_not_kept_again() -> None:
    links = InMemoryGroupLinks()
    links.drop_below(BLOCK_OFFSETS)
    links.put(1, 1)

    assert links.get(1) == NO_LINK
    assert links.block_count() == 0


def test_the_low_water_mark_may_be_far_from_where_it_was() -> None:
    links = InMemoryGroupLinks()
    links.put(10**15, 1)
    links.drop_below(10**15)

    assert links.get(10**15) == 1


def test_it_is_a_map() -> None:
    random, links, model = Random(1), InMemoryGroupLinks(), dict[int, int]()
    for number in range(5_000):
        offset = random.randrange(6 * BLOCK_OFFSETS)
        links.put(offset, number)
        model[offset] = number

    assert all(links.get(o) == model.get(o, NO_LINK) for o in range(6 * BLOCK_OFFSETS))
