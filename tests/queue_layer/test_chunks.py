"""Chunks of large messages: records of the log, and no messages of any queue."""

import pytest

from tests.queue_layer.driver import SECOND, Driver
from tidelog.queue_layer.ordering.delivery_order import MakeOrder, RecordFields
from tidelog.queue_layer.ordering.factory import order_for
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.queues import MessageState

PART = RecordFields(is_chunk=True)
ORDERS: list[MakeOrder] = [
    StandardOrder,
    FifoOrder,
    order_for(QueueConfig(priority_weights=(2, 1))),
    order_for(QueueConfig(fair_delivery=True)),
]


@pytest.mark.parametrize("make_order", ORDERS)
def test_chunks_are_neither_delivered_nor_counted(make_order: MakeOrder) -> None:
    driver = Driver(make_order=make_order)
    driver.on_chunks(3)
    driver.came(1, fields=[RecordFields(group=b"a")])
    driver.on_chunks(2)
    driver.came(3, fields=[PART, RecordFields(group=b"a"), PART])

    assert driver.counts() == {"visible": 2}
    assert driver.offsets() == [3, 7]
    assert driver.counts() == {"in_flight": 2}


@pytest.mark.parametrize("make_order", ORDERS)
def test_chunks_are_not_counted_after_a_failover(
    make_order: MakeOrder,
) -> None:
    driver = Driver(make_order=make_order)
    driver.came(1)
    driver.on_chunks(3)
    driver.came(2)
    driver.on_chunks(1)
    first = driver.take(3)

    driver.fail_over()

    assert driver.counts() == {"in_flight": 3}
    driver.delete(first)
    assert driver.counts() == {}
    assert driver.queue.state.low_water_mark == 6


def test_orphaned_chunks_block_nothing() -> None:
    driver = Driver()
    driver.on_chunks(5)
    driver.came(1)

    driver.delete(driver.take(1))

    assert driver.queue.state.low_water_mark == 6


@pytest.mark.parametrize("make_order", ORDERS)
def test_chunks_of_failed_sends_cost_one_range_until_a_later_message_is_received(
    make_order: MakeOrder,
) -> None:
    driver = Driver(make_order=make_order)
    for _ in range(100):
        driver.on_chunks(7)
    state = driver.queue.state
    assert list(state.unreceived.chunks(0, 1000)) == [(0, 700)]
    assert (state.first_message, state.oldest_offset) == (None, 700)
    assert driver.counts() == {}

    driver.came(1, fields=[RecordFields(group=b"a")])
    assert (state.first_message, state.oldest_offset) == (700, 700)
    assert driver.offsets() == [700]

    assert (state.unreceived.chunk_count, state.oldest_offset) == (0, 700)
    assert list(state.unreceived.chunks(0, 1000)) == []


def test_a_skipped_message_keeps_its_delay_and_chunks_are_no_messages() -> None:
    driver = Driver()
    later = driver.now_ms + 5 * SECOND
    driver.came(4, fields=[RecordFields(later), PART, PART, RecordFields()])

    assert driver.offsets() == [3]
    driver.fail_over()

    assert driver.counts() == {"in_flight": 1, "delayed": 1}
    driver.wait(5 * SECOND)
    assert driver.offsets() == [0]


def test_a_peek_returns_no_chunks() -> None:
    driver = Driver()
    driver.came(1)
    driver.on_chunks(2)
    driver.came(1, deliver_at_ms=driver.now_ms + SECOND)

    seen, _ = driver.queue.peek([], 0, 10)

    assert [(run.first_offset, run.count, run.state) for run in seen] == [
        (0, 1, MessageState.VISIBLE),
        (3, 1, MessageState.DELAYED),
    ]


def test_a_chunk_cannot_be_cancelled() -> None:
    driver = Driver()
    later = driver.now_ms + SECOND
    driver.came(4, fields=[RecordFields(later), PART, RecordFields(later), RecordFields()])

    refused = driver.cancel([(0, 4)])

    assert [(each.runs, each.error.code) for each in refused] == [
        ([(1, 1)], ErrorCode.MESSAGE_GONE),
        ([(3, 1)], ErrorCode.INVALID_REQUEST),
    ]
    assert driver.counts() == {"visible": 1}


def test_a_purge_removes_chunks_without_counting_them() -> None:
    driver = Driver(records=1)
    driver.on_chunks(2)
    driver.came(1)

    assert driver.purge() == 2
    assert driver.queue.state.low_water_mark == 4
    assert driver.counts() == {}


def test_a_seek_redelivers_messages_and_no_chunks() -> None:
    driver = Driver(records=1)
    driver.on_chunks(2)
    driver.came(1)
    driver.delete(driver.take())

    driver.do(driver.queue.seek(1, now_ms=driver.now_ms))
    driver.tell_again()

    assert driver.counts() == {"visible": 1}
    assert driver.offsets() == [3]


def test_consecutive_chunks_cost_one_range() -> None:
    driver = Driver()
    driver.queue.state.on_chunks(0, 10**9)
    driver.queue.state.on_records(10**9, 10**9 + 1)
    frames = len(driver.journal)

    assert driver.offsets() == [10**9]
    assert sum(map(len, driver.journal[frames:])) < 100
