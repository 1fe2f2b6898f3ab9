"""Queue state: determined by the journal entries; time and records change only derived state."""

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


def test_the_low_water_mark_is_the_first_message_that_is_not_done() -> None:
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
def test_a_move_reported_twice_happens_once() -> None:
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

    failed = driver.queue.move_failed(batch, 1, "no", delay_ms=SECOND, now_ms=driver.now_ms)
    driver.do(failed)

    assert driver.counts() == {"delayed": 1, "dead": 2}
    rest = driver.queue.state.moves.next_batch(TARGET)
    assert rest is not None
    assert (rest.epoch, rest.sequence, rest.runs) == (1, 0, [(1, 2)])


@pytest.mark.parametrize("make_order", [StandardOrder, FifoOrder, FairOrder])
def test_a_message_that_cannot_be_moved_is_retried_after_a_delay(
    make_order: MakeOrder,
) -> None:
    driver = with_dead_letters(1, make_order)
    batch = driver.queue.state.moves.next_batch(TARGET)
    assert batch is not None

    failed = driver.queue.move_failed(batch, 1, "no", delay_ms=SECOND, now_ms=driver.now_ms)
    driver.do(failed)

    assert driver.counts() == {"delayed": 1}
    driver.wait(SECOND)
    assert driver.counts() == {"dead": 1}


@pytest.mark.statement("b55")
def test_a_pending_move_survives_a_failover() -> None:
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
def test_kept_dead_letters_move_to_a_new_dead_letter_queue() -> None:
    driver = Driver(records=1)
    driver.settle(driver.take(), SettleAction.REJECT)
    assert driver.queue.adopt_kept(now_ms=driver.now_ms).entries == []
    driver.config = DYING
    driver.fail_over()

    driver.do(driver.queue.adopt_kept(now_ms=driver.now_ms))

    assert driver.queue.state.moves.targets() == [TARGET]
    assert driver.queue.adopt_kept(now_ms=driver.now_ms).entries == []


def test_first_received_ms_is_the_time_of_the_first_receive() -> None:
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
def test_advancing_in_parts_gives_the_same_order(
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


def test_a_command_between_parts_sees_the_current_time() -> None:
    driver = busy(QueueConfig())
    before = driver.queue.state.counts()

    received = driver.take(12)

    assert before != (12, 0, 0, 0)
    assert sum(run.count for run in received.runs) == 12


@pytest.mark.statement("b86")
def test_leases_of_one_millisecond_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_state, "TIMERS_PER_STEP", 2)
    driver = Driver(QueueConfig(is_fifo=True), records=5, make_order=FifoOrder)
    for _ in range(5):
        driver.take(1, timeout_ms=SECOND)

    assert driver.queue.state.advance_in_part(START_MS + SECOND)

    assert driver.queue.state.counts() == (5, 0, 0, 0)


@pytest.mark.statement("b86")
def test_with_a_frozen_clock_leases_end_in_different_milliseconds(
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


def test_spreading_lease_ends_respects_the_maximum_visibility_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(visibility_timers, "CROWD", 1)
    driver = Driver(QueueConfig(is_fifo=True), records=3, make_order=FifoOrder)
    taken = [driver.take(1, timeout_ms=VISIBILITY_TIMEOUT_MS_MAX) for _ in range(3)]
    for each in taken:
        driver.settle(each, SettleAction.EXTEND, delay_ms=VISIBILITY_TIMEOUT_MS_MAX)

    driver.queue.state.advance(START_MS + VISIBILITY_TIMEOUT_MS_MAX)

    assert driver.queue.state.counts() == (3, 0, 0, 0)


def test_a_message_past_its_delivery_time_is_not_delayed() -> None:
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


def test_removed_records_have_no_delivery_time() -> None:
    fresh = UnreceivedRecords(0, 0)
    fresh.on_records(20)
    fresh.remove(0, 1)
    fresh.delay(2, 10, 100)

    fresh.remove(1, 5)

    assert fresh.delayed_count == 5
    assert fresh.pop_due(100) == [(5, 10, 100)]


RUNNING = Redrive(end=100, next_offset=40, to_move=50, started_ms=1, taken=20, skipped=5)


def test_messages_not_looked_at_are_left_in_a_redrive() -> None:
    assert RUNNING.left == 25
    assert replace(RUNNING, status=RedriveStatus.CANCELLED).left == 25


def test_a_completed_redrive_has_nothing_left() -> None:
    assert replace(RUNNING, status=RedriveStatus.COMPLETED).left == 0


def test_a_redrive_may_take_more_messages_than_at_its_start() -> None:
    """Messages that were in flight at its start, and are visible by now."""
    assert replace(RUNNING, taken=60).left == 0
