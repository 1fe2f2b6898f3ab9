"""Range map, against a dictionary of single offsets."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.queue_layer.collections.range_map import RangeMap

LIMIT = 30
steps = st.lists(
    st.tuples(st.integers(0, LIMIT - 1), st.integers(1, 8), st.sampled_from([None, "a", "b"])),
    max_size=25,
)


def singles(ranges: RangeMap[str]) -> dict[int, str]:
    return {offset: value for first, end, value in ranges for offset in range(first, end)}


@given(steps)
def test_the_range_map_matches_a_dict_of_offsets(
    changes: list[tuple[int, int, str | None]],
) -> None:
    ranges: RangeMap[str] = RangeMap()
    model: dict[int, str] = {}

    for first, count, value in changes:
        wanted = range(first, first + count)
        removed = ranges.cut(first, first + count)
        assert {o: v for a, b, v in removed for o in range(a, b)} == {
            o: model.pop(o) for o in wanted if o in model
        }
        if value is not None:
            begins = ranges.put(first, first + count, value)
            assert begins <= first
            model.update(dict.fromkeys(wanted, value))

        assert singles(ranges) == model
        assert ranges.first == min(model, default=None)


@given(steps)
def test_equal_neighbours_are_one_range(changes: list[tuple[int, int, str | None]]) -> None:
    ranges: RangeMap[str] = RangeMap()
    for first, count, value in changes:
        ranges.cut(first, first + count)
        if value is not None:
            ranges.put(first, first + count, value)

    found = list(ranges)

    assert all(a[1] < b[0] or a[2] != b[2] for a, b in pairwise(found))


@given(steps, st.integers(0, LIMIT), st.integers(0, LIMIT))
def test_pieces_are_cut_to_the_requested_range(
    changes: list[tuple[int, int, str | None]], first: int, end: int
) -> None:
    ranges: RangeMap[str] = RangeMap()
    for start, count, value in changes:
        ranges.cut(start, start + count)
        if value is not None:
            ranges.put(start, start + count, value)

    pieces = {o: v for a, b, v in ranges.pieces(first, end) for o in range(a, b)}

    assert pieces == {o: v for o, v in singles(ranges).items() if first <= o < end}


def test_overlapping_ranges_are_rejected() -> None:
    ranges: RangeMap[str] = RangeMap()
    ranges.put(0, 10, "a")

    with pytest.raises(AssertionError, match="overlaps"):
        ranges.put(5, 12, "b")


def test_a_range_is_found_by_its_first_offset() -> None:
    ranges: RangeMap[str] = RangeMap()
    ranges.insert(3, 5, "a")

    assert ranges.starting_at(3) == (5, "a")
    assert ranges.starting_at(4) is None
    ranges.clear()
    assert len(ranges) == 0


def test_fill_replaces_all_ranges() -> None:
    ranges: RangeMap[str] = RangeMap()
    ranges.put(5, 6, "old")

    ranges.fill([(0, 2, "a"), (2, 3, "b"), (7, 9, "b")])
    assert list(ranges) == [(0, 2, "a"), (2, 3, "b"), (7, 9, "b")]
    assert list(ranges.pieces(1, 8)) == [(1, 2, "a"), (2, 3, "b"), (7, 8, "b")]

    ranges.fill([])
    assert list(ranges) == []
    with pytest.raises(AssertionError):
        ranges.fill([(0, 2, "a"), (1, 3, "b")])


def test_values_that_equal_offsets_are_no_ends_of_ranges() -> None:
    ranges: RangeMap[int] = RangeMap()
    ranges.put(0, 10, 5)

    assert ranges.cut(0, 5) == [(0, 5, 5)]

    assert list(ranges) == [(5, 10, 5)]


@pytest.mark.parametrize(("first", "end"), [(3, 3), (2, 2), (5, 5), (4, 3), (0, 0)])
def test_an_empty_range_has_no_pieces_and_removes_nothing(first: int, end: int) -> None:
    ranges: RangeMap[str] = RangeMap()
    ranges.put(2, 5, "a")

    assert list(ranges.pieces(first, end)) == []
    assert ranges.cut(first, end) == []
    assert list(ranges) == [(2, 5, "a")]
    for add in (ranges.put, ranges.insert):
        with pytest.raises(AssertionError):
            add(first, end, "b")
