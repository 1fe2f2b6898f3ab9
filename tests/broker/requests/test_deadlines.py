"""Tests of deadlines."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.requests.deadlines import Deadlines


def test_no_deadline_is_due_without_items() -> None:
    deadlines: Deadlines[str] = Deadlines()

    assert deadlines.next_deadline is None
    assert deadlines.take_expired(1e9) == []


def test_expired_items_are_taken_earliest_first() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("late", 3.0)
    deadlines.add("early", 1.0)
    deadlines.add("between", 2.0)

    assert deadlines.take_expired(2.0) == ["early", "between"]
    assert deadlines.take_expired(3.0) == ["late"]
    assert len(deadlines) == 0


def test_no_item_expires_before_its_deadline() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("waiting", 1.011)

    assert deadlines.take_expired(1.011) == []
    assert deadlines.next_deadline == 1.02
    assert deadlines.take_expired(1.02) == ["waiting"]


def test_add_returns_whether_the_next_deadline_is_earlier_now() -> None:
    deadlines: Deadlines[str] = Deadlines()

    assert deadlines.add("first", 2.0)
    assert not deadlines.add("same", 2.0)
    assert not deadlines.add("later", 3.0)
    assert deadlines.add("earlier", 1.0)


def test_a_discarded_item_does_not_expire() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("gone", 1.0)
    deadlines.add("there", 2.0)

    deadlines.discard("gone")
    deadlines.discard("never known")

    assert deadlines.next_deadline == 2.0
    assert deadlines.take_expired(5.0) == ["there"]


def test_an_item_added_again_after_a_discard_expires_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("waiting", 1.0)
    deadlines.discard("waiting")
    deadlines.add("waiting", 1.0)

    assert deadlines.take_expired(1.0) == ["waiting"]
    assert deadlines.next_deadline is None


@given(st.floats(0, 1e7))
def test_items_are_due_exactly_at_the_next_deadline(deadline: float) -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("waiting", deadline)
    due = deadlines.next_deadline

    assert due is not None
    assert deadline - 1e-9 <= due <= deadline + 0.02 + 1e-9
    assert deadlines.take_expired(due) == ["waiting"]


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0, 10), st.booleans()), max_size=30))
def test_many_deadlines_agree_with_a_sorted_list(steps: list[tuple[int, float, bool]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    naive: dict[int, float] = {}
    for waiting, deadline, is_discarded in steps:
        if waiting in naive:
            if is_discarded:
                deadlines.discard(waiting)
                del naive[waiting]
            continue
        deadlines.add(waiting, deadline)
        naive[waiting] = deadline

    expired = deadlines.take_expired(5.0)

    assert len(deadlines) == len(naive) - len(expired)
    assert {waiting for waiting, deadline in naive.items() if deadline <= 4.98} <= set(expired)
    assert all(naive[waiting] <= 5.0 for waiting in expired)
