"""FIFO dispatch: one message of a group at a time, and none overtakes."""

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
    return [order.begin() for _ in range(len(order.ready))]


def test_items_without_a_group_are_all_ready() -> None:
    assert begun(order_of("-1", "-2", "-3")) == ["-1", "-2", "-3"]


def test_the_first_item_of_each_group_is_ready() -> None:
    order = order_of("a1", "a2", "b1", "a3", "b2")

    assert begun(order) == ["a1", "b1"]
    assert order.behind_count == 3


def test_the_next_item_of_a_group_is_ready_after_the_first_is_done() -> None:
    order = order_of("a1", "a2", "b1", "a3")
    begun(order)

    assert order.go_on("a") == "a2"
    assert begun(order) == ["a2"]


def test_a_later_item_waits_for_its_group() -> None:
    order = order_of("a1")
    begun(order)
    order.put("a2", "a")
    assert not order.ready

    order.go_on("a")

    assert begun(order) == ["a2"]


def test_a_finished_group_starts_again() -> None:
    order = order_of("a1")
    begun(order)
    assert order.go_on("a") is None

    order.put("a2", "a")

    assert begun(order) == ["a2"]


def test_items_behind_a_failed_one_are_removed() -> None:
    order = order_of("a1", "a2", "b1", "a3", "b2")
    begun(order)

    assert order.break_off("a") == ["a2", "a3"]

    order.put("a1", "a")
    assert begun(order) == ["a1"]
    assert order.behind_count == 1


def test_items_without_a_group_block_no_others() -> None:
    order = order_of("-1", "-2")
    order.begin()

    order.go_on(None)

    assert order.break_off(None) == []
    assert begun(order) == ["-2"]


def test_clear_returns_all_items_not_started() -> None:
    order = order_of("a1", "-1", "a2", "a3", "b1")
    order.begin()

    assert sorted(order.clear()) == ["-1", "a2", "a3", "b1"]
    assert (len(order.ready), order.behind_count) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "done", "failed"]))))
def test_no_item_overtakes_in_its_group(steps: list[tuple[str, str]]) -> None:
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
        while order.ready:
            name, found = order.begin()
            assert name not in at_work, "one of a group at a time"
            assert waiting[name].pop(0) == found, "in order"
            at_work[name] = found
        assert order.behind_count == sum(map(len, waiting.values()))
        assert all(name in at_work for name, found in waiting.items() if found), "no group is stuck"


def test_ready_items_are_taken_back_with_those_behind_them() -> None:
    dispatch: FifoDispatch[str] = FifoDispatch()
    for item, group in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("free", None)):
        dispatch.put(item, group)
    assert dispatch.begin() == "a1"
    assert dispatch.ready[0] == "b1"

    assert dispatch.take_ready() == ["b1", "free"]
    assert dispatch.break_off("b") == ["b2"]

    assert not dispatch.ready
    dispatch.go_on("a")
    assert dispatch.begin() == "a2"
