"""The same entries give the same state, however they came."""

import pytest

from tests.queue_layer.driver import SECOND, START_MS, TARGET, Driver
from tidelog.queue_layer.ordering.delivery_order import MakeOrder
from tidelog.queue_layer.ordering.fair_order import FairOrder
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queues import SettleAction

DYING = QueueConfig(max_receive_count=1, dead_letter_target=TARGET)


def with_dead_letters(count: int, make_order: MakeOrder = StandardOrder) -> Driver:
    driver = Driver(DYING, records=count, make_order=make_order)
    driver.offsets(count)
    driver.wait(30 * SECOND)
    driver.offsets(count)
    return driver


def test_the_low_water_mark_is_where_the_first_message_is_that_is_not_done() -> None:
    driver = Driver(records=5)
    received = driver.take(3)
    driver.delete(received, 0, 2)
    assert driver.queue.state.low_water_mark == 1

    driver.delete(received, 1)

    assert driver.queue.state.low_water_mark == 3


@pytest.mark.statement("b55")
def test_a_dead_letter_holds_the_low_water_mark_until_it_is_moved() -> None:
    driver = with_dead_letters(3)
    batch = driver.queue.state.moves.next_batch(TARGET)
    assert batch is not None
    assert driver.queue.state.low_water_mark == 0

    driver.do(driver.queue.moved(batch, 2, now_ms=driver.now_ms))

    assert driver.queue.state.low_water_mark == 2
    assert driver.counts() == {"dead": 1}


@pytest.mark.statement("b55", "b80")
def test_a_move_that_was_told_twice_happens_once() -> None:
    """Statement 80."""
    driver = with_dead_letters(3)
    batch = driver.queue.state.moves.next_batch(TARGET)
    assert batch is not None
    driver.do(driver.queue.moved(batch, 2, now_ms=driver.now_ms))

    again = driver.queue.moved(batch, 2, now_ms=driver.now_ms)

    assert again.entries == []
    assert driver.counts() == {"dead": 1}


def test_a_message_that_cannot_be_moved_is_visible_again() -> None:
    driver = with_dead_letters(3)
    batch = driver.queue.state.moves.next_batch(TARGET)
    assert batch is not None

    driver.do(driver.queue.move_failed(batch, 1, "too large", now_ms=driver.now_ms))

    assert driver.counts() == {"visible": 1, "dead": 2}
    rest = driver.queue.state.moves.next_batch(TARGET)
    assert rest is not None
    assert (rest.epoch, rest.sequence, rest.runs) == (1, 0, [(1, 2)])


@pytest.mark.parametrize("make_order", [StandardOrder, FifoOrder, FairOrder])
def test_a_message_that_cannot_be_moved_may_wait_before_it_is_tried_again(
    make_order: MakeOrder,
) -> None:
    driver = with_dead_letters(1, make_order)
    batch = driver.queue.state.moves.next_batch(TARGET)
    assert batch is not None

    failed = driver.queue.move_failed(batch, 1, "no", delay_ms=SECOND, now_ms=driver.now_ms)
    driver.do(failed)

    assert driver.counts() == {"delayed": 1}
    driver.wait(SECOND)
    assert driver.offsets() == []
    assert driver.counts() == {"dead": 1}


@pytest.mark.statement("b55")
def test_a_pending_move_is_the_same_after_a_takeover() -> None:
    driver = with_dead_letters(3)
    batch = driver.queue.state.moves.next_batch(TARGET)

    driver.fail_over()

    assert driver.queue.state.moves.next_batch(TARGET) == batch
    assert driver.queue.state.moves.targets() == [TARGET]


@pytest.mark.statement("b71")
def test_a_purge_stops_pending_moves() -> None:
    """Statement 71."""
    driver = with_dead_letters(3)

    assert driver.purge() == 3

    assert driver.queue.state.moves.targets() == []
    driver.came()
    driver.offsets()
    driver.wait(30 * SECOND)
    driver.offsets()
    batch = driver.queue.state.moves.next_batch(TARGET)
    assert batch is not None
    assert (batch.epoch, batch.sequence) == (1, 0)


@pytest.mark.statement("b88")
def test_dead_letters_that_were_kept_go_where_the_queue_says_now() -> None:
    driver = Driver(records=1)
    driver.settle(driver.take(), SettleAction.REJECT)
    assert driver.queue.adopt_kept(now_ms=driver.now_ms).entries == []
    driver.queue.configure(DYING)

    driver.do(driver.queue.adopt_kept(now_ms=driver.now_ms))

    assert driver.queue.state.moves.targets() == [TARGET]
    assert driver.queue.adopt_kept(now_ms=driver.now_ms).entries == []


def test_the_time_of_a_message_is_that_of_its_first_receive() -> None:
    driver = Driver(records=1)
    driver.wait(SECOND)
    driver.take(timeout_ms=SECOND)
    driver.wait(SECOND)

    assert driver.take().runs[0].first_received_ms == START_MS + SECOND
