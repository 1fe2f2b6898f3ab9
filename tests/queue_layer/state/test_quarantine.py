"""Quarantine of messages that cannot be read for a while."""

import pytest

from tests.queue_layer.driver import SECOND, Driver
from tidelog.queue_layer.ordering.delivery_order import MakeOrder, RecordFields
from tidelog.queue_layer.ordering.fair_order import FairOrder
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.queue_layer.ordering.priority_order import priority_order
from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.wire.messages.queues import MessageState, SettleAction


def of_groups(*groups: bytes) -> Driver:
    driver = Driver(make_order=FifoOrder)
    driver.came(len(groups), fields=[RecordFields(group=group) for group in groups])
    return driver


def test_a_quarantined_message_blocks_only_its_group() -> None:
    driver = of_groups(b"a", b"b", b"a", b"b")

    driver.queue.state.quarantine(0, 1)

    assert driver.offsets() == [1, 3]
    assert driver.offsets() == []
    seen, _ = driver.queue.peek([MessageState.BLOCKED], 0, 10)
    assert [run.first_offset for run in seen] == [2]
    driver.queue.state.end_quarantine(0, 1)
    assert driver.offsets() == [0, 2]


@pytest.mark.parametrize("make_order", [StandardOrder, FifoOrder])
def test_a_quarantine_changes_no_decided_state(make_order: MakeOrder) -> None:
    driver = Driver(records=4, make_order=make_order)
    size = len(driver.journal)
    leased = driver.take(1)

    driver.queue.state.quarantine(0, 3)

    assert driver.counts() == {"visible": 3, "in_flight": 1}
    assert driver.offsets() == [3]
    assert len(driver.journal) == size + 2
    driver.queue.state.end_quarantine(0, 3)
    driver.settle(leased, SettleAction.RELEASE)
    assert sorted(driver.offsets()) == [0, 1, 2]


def test_a_quarantine_keeps_delayed_and_deleted_messages() -> None:
    driver = Driver()
    driver.came(3, fields=[RecordFields(driver.now_ms + SECOND), RecordFields(), RecordFields()])
    driver.queue.state.quarantine(0, 3)
    driver.do(driver.queue.trim(2, now_ms=driver.now_ms))

    driver.queue.state.end_quarantine(0, 3)

    assert driver.offsets() == [2]


@pytest.mark.parametrize(
    "make_order", [StandardOrder, FifoOrder, priority_order([3, 1]), FairOrder]
)
def test_a_message_that_becomes_visible_in_quarantine_is_delivered_once(
    make_order: MakeOrder,
) -> None:
    driver = Driver(records=5, make_order=make_order)
    driver.take(2, timeout_ms=SECOND)
    driver.queue.state.quarantine(0, 4)
    driver.wait(SECOND)

    driver.queue.state.end_quarantine(0, 4)
    driver.queue.state.end_quarantine(0, 4)

    assert sorted(driver.offsets(5)) == [0, 1, 2, 3, 4]
    assert driver.offsets(5) == []


@pytest.mark.parametrize(
    "make_order", [StandardOrder, FifoOrder, priority_order([3, 1]), FairOrder]
)
def test_a_message_that_becomes_visible_in_quarantine_can_be_quarantined_again(
    make_order: MakeOrder,
) -> None:
    driver = Driver(records=5, make_order=make_order)
    driver.take(2, timeout_ms=SECOND)
    driver.queue.state.quarantine(0, 4)
    driver.wait(SECOND)

    driver.queue.state.quarantine(0, 4)

    assert driver.offsets(5) == [4]
    driver.queue.state.end_quarantine(0, 4)
    assert sorted(driver.offsets(5)) == [0, 1, 2, 3]
