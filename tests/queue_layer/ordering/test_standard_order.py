"""Standard order: log order, and redeliverable messages, without starvation."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.queue_layer.ordering.standard_order import StandardOrder

ODD, EVEN = 1, 2


def order(records: int, *, start: int = 0) -> StandardOrder:
    made = StandardOrder(start)
    made.on_records(start, start + records, None)
    return made


def chosen(made: StandardOrder, limit: int, turn: int = ODD) -> list[int]:
    offsets = (
        offset for first, end, _ in made.candidates(limit, turn) for offset in range(first, end)
    )
    return list(islice(offsets, limit))


def test_a_backlog_is_one_range() -> None:
    assert list(order(10**9).candidates(10, ODD)) == [(0, 10**9, 0)]


def test_invisible_messages_are_no_candidates() -> None:
    made = order(10)
    made.on_invisible(0, 2, is_in_flight=True)
    made.on_invisible(5, 7, is_in_flight=False)
    made.on_dead_lettered(8, 9)

    assert chosen(made, 10) == [2, 3, 4, 7, 9]


@pytest.mark.statement("b62")
def test_redeliverable_messages_are_ordered_by_time() -> None:
    made = order(3)
    made.on_invisible(0, 3, is_in_flight=True)
    made.on_visible(2, 3, 100)
    made.on_visible(0, 1, 300)
    made.on_visible(1, 2, 200)

    assert chosen(made, 10) == [2, 1, 0]


@pytest.mark.statement("b62")
def test_redeliverable_and_new_messages_share_a_receive() -> None:
    made = order(100)
    made.on_invisible(0, 10, is_in_flight=True)
    made.on_visible(0, 10, 100)

    assert chosen(made, 4, ODD) == [0, 1, 10, 11]
    assert chosen(made, 4, EVEN) == [10, 11, 0, 1]


def test_a_share_that_is_not_needed_goes_to_the_other_kind() -> None:
    made = order(12)
    made.on_invisible(0, 10, is_in_flight=True)
    made.on_visible(0, 2, 100)

    assert chosen(made, 10, ODD) == [0, 1, 10, 11]
    made.on_visible(2, 10, 200)
    assert chosen(made, 10, EVEN) == [10, 11, 0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.statement("b62")
def test_receives_of_one_message_take_turns() -> None:
    made = order(100)
    made.on_invisible(0, 10, is_in_flight=True)
    made.on_visible(0, 10, 100)

    assert chosen(made, 1, ODD) == [0]
    assert chosen(made, 1, EVEN) == [10]


def test_messages_visible_before_the_first_record_are_known() -> None:
    made = StandardOrder(10)
    made.on_visible(3, 5, 100)
    made.on_records(10, 12, None)

    assert chosen(made, 10, ODD) == [3, 4, 10, 11]


def test_no_message_is_blocked() -> None:
    assert list(order(10).blocked(0, 10)) == []


steps = st.lists(
    st.tuples(
        st.sampled_from(["invisible", "visible", "dead", "done"]),
        st.integers(0, 19),
        st.integers(1, 6),
        st.integers(0, 5),
    ),
    max_size=30,
)


@given(steps, st.integers(1, 25), st.integers(1, 2))
def test_all_visible_messages_are_candidates_and_nothing_else(
    changes: list[tuple[str, int, int, int]], limit: int, turn: int
) -> None:
    made = order(20)
    visible = set(range(20))
    for change, first, count, time_ms in changes:
        end = min(20, first + count)
        match change:
            case "visible":
                for offset in range(first, end):
                    if offset not in visible:
                        made.on_visible(offset, offset + 1, time_ms)
                visible.update(range(first, end))
            case "invisible":
                made.on_invisible(first, end, is_in_flight=True)
                visible.difference_update(range(first, end))
            case "dead":
                made.on_dead_lettered(first, end)
                visible.difference_update(range(first, end))
            case _:
                made.on_deleted(first, end)
                visible.difference_update(range(first, end))

        offered = [o for a, b, _ in made.candidates(limit, turn) for o in range(a, b)]
        assert len(offered) == len(set(offered))
        assert set(offered) == visible
