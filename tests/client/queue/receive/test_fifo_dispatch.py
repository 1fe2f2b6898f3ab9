"""Of a FIFO group one message is at work at a time, and none overtakes."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.queue.receive.fifo_dispatch import FifoDispatch


def order_of(*items: str) -> FifoDispatch[str]:
    """Return items whose first letters are their groups; `-` is none."""
    order: FifoDispatch[str] = FifoDispatch()
    for item in items:
        order.put(item, None if item[0] == "-" else item[0])
    return order


def begun(order: FifoDispatch[str]) -> list[str]:
    return [order.begin() for _ in range(order.ready_count)]


def test_items_without_a_group_may_all_begin() -> None:
    assert begun(order_of("-1", "-2", "-3")) == ["-1", "-2", "-3"]


def test_of_each_group_the_first_one_may_begin() -> None:
    order = order_of("a1", "a2", "b1", "a3", "b2")

    assert begun(order) == ["a1", "b1"]
    assert order.behind_count == 3


def test_the_next_one_may_begin_when_the_first_one_is_done() -> None:
    order = order_of("a1", "a2", "b1", "a3")
    begun(order)

    order.go_on("a")

    assert begun(order) == ["a2"]


def test_what_comes_while_one_of_its_group_is_at_work_waits() -> None:
    order = order_of("a1")
    begun(order)
    order.put("a2", "a")
    assert order.ready_count == 0

    order.go_on("a")

    assert begun(order) == ["a2"]


def test_a_group_of_which_all_is_done_begins_anew() -> None:
    order = order_of("a1")
    begun(order)
    order.go_on("a")

    order.put("a2", "a")

    assert begun(order) == ["a2"]


def test_what_stands_behind_one_that_is_not_done_is_taken_out() -> None:
    order = order_of("a1", "a2", "b1", "a3", "b2")
    begun(order)

    assert order.break_off("a") == ["a2", "a3"]

    order.put("a1", "a")
    assert begun(order) == ["a1"]
    assert order.behind_count == 1


def test_what_has_no_group_holds_up_nobody() -> None:
    order = order_of("-1", "-2")
    order.begin()

    order.go_on(None)

    assert order.break_off(None) == []
    assert begun(order) == ["-2"]


def test_all_that_has_not_begun_can_be_taken_out() -> None:
    order = order_of("a1", "-1", "a2", "a3", "b1")
    order.begin()

    assert sorted(order.clear()) == ["-1", "a2", "a3", "b1"]
    assert (order.ready_count, order.behind_count) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "done", "failed"]))))
def test_nothing_overtakes_whatever_happens(steps: list[tuple[str, str]]) -> None:
    order: FifoDispatch[tuple[str, int]] = FifoDispatch()
    waiting: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    at_work: dict[str, int] = {}
    for number, (group, step) in enumerate(steps):
        if step == "put":
            order.put((group, number), group)
            waiting[group].append(number)
        elif group in at_work:
            del at_work[group]
            if step == "done":
                order.go_on(group)
            else:
                assert order.break_off(group) == [(group, each) for each in waiting[group]]
                waiting[group].clear()
        while order.ready_count:
            name, found = order.begin()
            assert name not in at_work, "one of a group at a time"
            assert waiting[name].pop(0) == found, "in order"
            at_work[name] = found
        assert order.behind_count == sum(map(len, waiting.values()))
        assert all(name in at_work for name, found in waiting.items() if found), "nobody is stuck"
