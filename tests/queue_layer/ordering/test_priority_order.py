"""Priorities: urgent messages overtake others, by weight."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_layer.driver import SECOND, Driver
from tests.queue_layer.order_model import RECORDS, Change, changes, check_order, chosen
from tidelog.queue_layer.commands.receive import ReceiveCommand
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.ordering.factory import order_for
from tidelog.queue_layer.ordering.priority_order import PriorityOrder, priority_order
from tidelog.wire.config.queue_config import QueueConfig


def order(
    *priorities: int,
    weights: tuple[int, ...] = (3, 1),
    is_strict: bool = False,
    default: int | None = None,
) -> PriorityOrder:
    made = PriorityOrder(0, weights, is_strict=is_strict, default=default)
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


@pytest.mark.parametrize(
    ("default", "expected"), [(None, [0, 1, 2, 3, 4]), (1, [0, 3, 4, 1, 2]), (0, [3, 4, 0, 1, 2])]
)
def test_messages_without_a_priority_have_the_default_priority(
    default: int | None, expected: list[int]
) -> None:
    """Without a default, it is the least urgent one."""
    made = order(1, 2, 2, weights=(1, 1, 1), is_strict=True, default=default)
    made.on_records(3, 4, [RecordFields(group=b"a key")])
    made.on_records(4, 5, None)

    assert chosen(made, 5) == expected


@pytest.mark.statement("b99")
def test_a_strict_order_delivers_a_message_when_no_more_urgent_one_is_visible() -> None:
    made = order(*[2, 1, 0] * 20, weights=(1, 1, 1), is_strict=True)
    taken: list[int] = []
    for turn in range(30):
        found = chosen(made, 2, turn)
        for offset in found:
            made.on_invisible(offset, offset + 1, is_in_flight=True)
        taken += found

    assert taken == [*range(2, 60, 3), *range(1, 60, 3), *range(0, 60, 3)]
    made.on_visible(2, 3, 10)
    assert chosen(made, 2) == [2]


@pytest.mark.parametrize("is_strict", [False, True])
def test_the_rank_of_a_message_is_its_priority(*, is_strict: bool) -> None:
    made = order(1, 0, 1, is_strict=is_strict)
    made.on_invisible(1, 2, is_in_flight=True)
    made.on_visible(1, 2, 10)

    assert list(made.candidates(3, 1)) == [(1, 2, 0), (0, 1, 1), (2, 3, 1)]


def test_redelivered_messages_share_their_priority_with_new_ones() -> None:
    made = order(*[0] * 8)
    made.on_invisible(0, 4, is_in_flight=True)
    made.on_visible(0, 4, 10)

    assert chosen(made, 4, 1) == [0, 1, 4, 5]
    assert chosen(made, 4, 2) == [4, 5, 0, 1]


def test_no_message_is_blocked() -> None:
    assert list(order(0, 1).blocked(0, 2)) == []


@given(
    st.lists(st.integers(0, 3), min_size=RECORDS, max_size=RECORDS),
    changes,
    st.integers(1, 30),
    st.booleans(),
)
def test_all_visible_messages_are_offered_once(
    priorities: list[int],
    told: list[Change],
    limit: int,
    is_strict: bool,
) -> None:
    check_order(
        priority_order((4, 2, 1), is_strict=is_strict)(0),
        [RecordFields(priority=priority) for priority in priorities],
        told,
        limit=limit,
    )


def test_a_priority_queue_keeps_all_messages_after_a_failover() -> None:
    config = QueueConfig(priority_weights=(3, 1), default_priority=1)
    driver = Driver(config, make_order=order_for(config))
    driver.came(6, fields=[RecordFields(priority=priority) for priority in (1, 1, None, 0, 1, 0)])
    received = driver.take(3)
    assert [run.first_offset for run in received.runs] == [0, 3, 5]
    driver.delete(received, 3)

    driver.fail_over()

    assert driver.counts() == {"visible": 3, "in_flight": 2}
    assert driver.offsets(1) == [1]
    driver.wait(30 * SECOND)
    assert sorted(driver.offsets()) == [0, 1, 2, 4, 5]


def test_a_receive_tells_the_order_of_its_messages() -> None:
    config = QueueConfig(priority_weights=(2, 1), max_in_flight=5)
    driver = Driver(config, make_order=order_for(config))
    driver.came(6, fields=[RecordFields(priority=priority) for priority in (1, 0, 0, 1, 1, 0)])

    received = driver.take(6)

    runs = [(run.first_offset, run.count, run.rank) for run in received.runs]
    assert runs == [(0, 1, 1), (1, 2, 0), (3, 1, 1), (5, 1, 0)]


def test_the_rank_of_a_message_is_known_behind_damaged_ones() -> None:
    config = QueueConfig(priority_weights=(2, 1))
    driver = Driver(config, make_order=order_for(config))
    driver.came(6, fields=[RecordFields(priority=priority) for priority in (0, 1, 1, 1, 1, 0)])
    plan = driver.queue.plan(ReceiveCommand(max_messages=6), now_ms=driver.now_ms)
    assert [(run.first_offset, run.count) for run in plan][:3] == [(0, 1), (5, 1), (1, 2)]

    outcome = driver.queue.receive(plan, [(0, 1), (5, 1), (2, 1)], now_ms=driver.now_ms)

    ranks = [(run.first_offset, run.rank) for run in outcome.reply.runs]
    assert ranks == [(0, 0), (2, 1), (5, 0)]


def test_a_receive_with_an_old_plan_keeps_the_most_urgent_messages() -> None:
    config = QueueConfig(priority_weights=(2, 1), max_in_flight=2)
    driver = Driver(config, make_order=order_for(config))
    driver.came(4, fields=[RecordFields(priority=priority) for priority in (1, 1, 1, 0)])
    plan = driver.queue.plan(ReceiveCommand(max_messages=2), now_ms=driver.now_ms)
    taken = [(run.first_offset, run.count) for run in plan]
    assert taken == [(3, 1), (0, 1)]
    other = driver.queue.plan(ReceiveCommand(max_messages=2), now_ms=driver.now_ms)
    driver.do(driver.queue.receive(other, [(1, 1)], now_ms=driver.now_ms))

    received = driver.do(driver.queue.receive(plan, taken, now_ms=driver.now_ms))

    assert [run.first_offset for run in received.runs] == [3]
