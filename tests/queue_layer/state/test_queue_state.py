"""The same entries give the same state, however they came; time and records change what they do."""

from dataclasses import replace

import pytest

from tests.queue_layer.driver import SECOND, START_MS, TARGET, Driver
from tidelog.queue_layer.collections import visibility_timers
from tidelog.queue_layer.ordering.delivery_order import MakeOrder, RecordFields
from tidelog.queue_layer.ordering.factory import order_for
from tidelog.queue_layer.ordering.fair_order import FairOrder
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.queue_layer.state import queue_state
from tidelog.queue_layer.state.redrive_state import Redrive
from tidelog.queue_layer.state.unreceived import UnreceivedRecords
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queues import VISIBILITY_TIMEOUT_MS_MAX, SettleAction
from tidelog.wire.messages.redrives import RedriveStatus

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


def busy(config: QueueConfig) -> Driver:
    """Return a queue with leases and delays that end one after the other."""
    driver = Driver(config, make_order=order_for(config))
    for number in range(12):
        later = START_MS + (40 - number) * SECOND if number % 3 == 0 else 0
        driver.came(fields=[RecordFields(later, group=b"%d" % number)])
    for place in range(7):
        driver.take(1, timeout_ms=(30 - 2 * place) * SECOND)
    driver.now_ms = START_MS + 60 * SECOND
    return driver


@pytest.mark.statement("b86")
@pytest.mark.parametrize("config", [QueueConfig(), QueueConfig(is_fifo=True)])
@pytest.mark.parametrize("ended_max", [1, 2, 5])
def test_the_order_is_the_same_however_many_parts_there_are(
    monkeypatch: pytest.MonkeyPatch, config: QueueConfig, ended_max: int
) -> None:
    at_once, in_parts = busy(config), busy(config)
    monkeypatch.setattr(queue_state, "TIMERS_PER_STEP", ended_max)
    at_once.queue.state.advance(at_once.now_ms)
    parts, seen = 1, [in_parts.queue.state.counts()[0]]

    while not in_parts.queue.state.advance_in_part(in_parts.now_ms):
        parts += 1
        seen.append(in_parts.queue.state.counts()[0])
    assert parts >= 11 // ended_max
    assert seen == sorted(seen)

    assert in_parts.counts() == at_once.counts()
    assert [in_parts.offsets(1) for _ in range(12)] == [at_once.offsets(1) for _ in range(12)]


def test_who_asks_before_all_has_passed_is_answered_as_of_now() -> None:
    driver = busy(QueueConfig())
    before = driver.queue.state.counts()

    received = driver.take(12)

    assert before != (12, 0, 0, 0)
    assert sum(run.count for run in received.runs) == 12


@pytest.mark.statement("b86")
def test_what_ends_in_one_millisecond_ends_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_state, "TIMERS_PER_STEP", 2)
    driver = Driver(QueueConfig(is_fifo=True), records=5, make_order=FifoOrder)
    for _ in range(5):
        driver.take(1, timeout_ms=SECOND)

    assert driver.queue.state.advance_in_part(START_MS + SECOND)

    assert driver.queue.state.counts() == (5, 0, 0, 0)


@pytest.mark.statement("b86")
def test_where_the_clock_stands_still_not_all_leases_end_in_one_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(visibility_timers, "CROWD", 2)
    monkeypatch.setattr(queue_state, "TIMERS_PER_STEP", 2)
    driver = Driver(QueueConfig(is_fifo=True), records=7, make_order=FifoOrder)
    taken = [driver.take(1, timeout_ms=SECOND) for _ in range(6)]
    assert [each.deadline_ms - START_MS - SECOND for each in taken] == [0, 0, 1, 1, 2, 2]
    for each in taken:
        driver.settle(each, SettleAction.EXTEND, delay_ms=2 * SECOND)
    visible: list[int] = []

    for step in range(3):
        while not driver.queue.state.advance_in_part(START_MS + 2 * SECOND + step):
            pass
        visible.append(driver.queue.state.counts()[0])

    assert visible == [3, 5, 7]


def test_no_lease_is_longer_than_any_may_be_because_many_end_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(visibility_timers, "CROWD", 1)
    driver = Driver(QueueConfig(is_fifo=True), records=3, make_order=FifoOrder)
    taken = [driver.take(1, timeout_ms=VISIBILITY_TIMEOUT_MS_MAX) for _ in range(3)]
    for each in taken:
        driver.settle(each, SettleAction.EXTEND, delay_ms=VISIBILITY_TIMEOUT_MS_MAX)

    driver.queue.state.advance(START_MS + VISIBILITY_TIMEOUT_MS_MAX)

    assert driver.queue.state.counts() == (3, 0, 0, 0)


def test_what_has_waited_enough_is_not_delayed_any_more() -> None:
    fresh = UnreceivedRecords(5, 0)
    fresh.on_records(20)
    fresh.delay(6, 8, 100)
    fresh.delay(8, 10, 100)
    fresh.delay(12, 13, 50)

    assert fresh.delayed_count == 5
    assert fresh.next_deadline_ms() == 50
    assert fresh.pop_due(50) == [(12, 13, 50)]
    assert list(fresh.delayed(0, 20)) == [(6, 10, 100)]
    assert fresh.pop_due(100) == [(6, 10, 100)]
    assert (fresh.delayed_count, fresh.next_deadline_ms()) == (0, None)


def test_what_is_not_fresh_any_more_is_not_waited_for() -> None:
    fresh = UnreceivedRecords(0, 0)
    fresh.on_records(20)
    fresh.remove(0, 1)
    fresh.delay(2, 10, 100)

    fresh.remove(1, 5)

    assert fresh.delayed_count == 5
    assert fresh.pop_due(100) == [(5, 10, 100)]


RUNNING = Redrive(end=100, next_offset=40, to_move=50, started_ms=1, taken=20, skipped=5)


def test_what_it_has_not_looked_at_is_left() -> None:
    assert RUNNING.left == 25
    assert replace(RUNNING, status=RedriveStatus.CANCELLED).left == 25


def test_nothing_is_left_when_it_has_looked_at_all_whoever_received_some_meanwhile() -> None:
    assert replace(RUNNING, status=RedriveStatus.COMPLETED).left == 0


def test_there_may_be_more_than_there_were() -> None:
    """Messages that were leased when it began, and are visible by now."""
    assert replace(RUNNING, taken=60).left == 0
