"""Priorities: urgent messages overtake others, by weight."""

from hypothesis import given
from hypothesis import strategies as st

from tests.queue_layer.driver import SECOND, Driver
from tests.queue_layer.order_model import RECORDS, Change, changes, check_order, chosen
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.ordering.factory import order_for
from tidelog.queue_layer.ordering.priority_order import PriorityOrder, priority_order
from tidelog.wire.config.queue_config import QueueConfig


def order(*priorities: int, weights: tuple[int, ...] = (3, 1)) -> PriorityOrder:
    made = PriorityOrder(0, weights)
    made.on_records(
        0, len(priorities), [RecordFields(priority=priority) for priority in priorities]
    )
    return made


def test_an_urgent_message_overtakes_those_before_it() -> None:
    assert chosen(order(1, 1, 1, 0), 2) == [3, 0]


def test_each_priority_gets_its_weight() -> None:
    made = order(*[0, 1] * 100)

    taken = chosen(made, 40)

    assert sum(offset % 2 == 0 for offset in taken) == 30
    assert taken == sorted(taken, key=lambda offset: (offset % 2, offset))


def test_each_priority_gets_its_weight_of_single_receives() -> None:
    made = order(*[0, 1] * 100)
    firsts: list[int] = []
    for turn in range(40):
        (offset,) = chosen(made, 1, turn)
        made.on_invisible(offset, offset + 1, is_in_flight=True)
        firsts.append(offset)

    assert sum(offset % 2 == 0 for offset in firsts) == 30


def test_an_unused_share_of_a_priority_goes_to_the_others() -> None:
    assert chosen(order(1, 1, 1), 3) == [0, 1, 2]
    assert chosen(order(0, 0, 0), 3) == [0, 1, 2]


def test_a_priority_beyond_the_last_is_the_last_priority() -> None:
    assert chosen(order(7, 0), 2) == [1, 0]


def test_messages_without_a_priority_have_the_first_priority() -> None:
    made = order(1, 1)
    made.on_records(2, 4, None)

    assert chosen(made, 4) == [2, 3, 0, 1]


def test_redelivered_messages_share_their_priority_with_new_ones() -> None:
    made = order(*[0] * 8)
    made.on_invisible(0, 4, is_in_flight=True)
    made.on_visible(0, 4, 10)

    assert chosen(made, 4, 1) == [0, 1, 4, 5]
    assert chosen(made, 4, 2) == [4, 5, 0, 1]


def test_no_message_is_blocked() -> None:
    assert list(order(0, 1).blocked(0, 2)) == []


@given(st.lists(st.integers(0, 3), min_size=RECORDS, max_size=RECORDS), changes, st.integers(1, 30))
def test_all_visible_messages_are_offered_once(
    priorities: list[int], told: list[Change], limit: int
) -> None:
    check_order(
        priority_order((4, 2, 1))(0),
        [RecordFields(priority=priority) for priority in priorities],
        told,
        limit=limit,
    )


def test_a_priority_queue_keeps_all_messages_after_a_failover() -> None:
    config = QueueConfig(priority_weights=(3, 1))
    driver = Driver(config, make_order=order_for(config))
    driver.came(6, fields=[RecordFields(priority=priority) for priority in (1, 1, 1, 0, 1, 0)])
    received = driver.take(3)
    assert [run.first_offset for run in received.runs] == [0, 3, 5]
    driver.delete(received, 3)

    driver.fail_over()

    assert driver.counts() == {"visible": 3, "in_flight": 2}
    assert driver.offsets(1) == [1]
    driver.wait(30 * SECOND)
    assert sorted(driver.offsets()) == [0, 1, 2, 4, 5]
