"""Time that passes in parts comes to the same as time that passes at once."""

import pytest

from tests.queue_layer.driver import SECOND, START_MS, Driver
from tidelog.queue_layer.collections import visibility_timers as deadlines
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.ordering.factory import order_for
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.queue_layer.state import queue_state
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queues import VISIBILITY_TIMEOUT_MS_MAX, SettleAction


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
    monkeypatch.setattr(deadlines, "CROWD", 2)
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
    monkeypatch.setattr(deadlines, "CROWD", 1)
    driver = Driver(QueueConfig(is_fifo=True), records=3, make_order=FifoOrder)
    taken = [driver.take(1, timeout_ms=VISIBILITY_TIMEOUT_MS_MAX) for _ in range(3)]
    for each in taken:
        driver.settle(each, SettleAction.EXTEND, delay_ms=VISIBILITY_TIMEOUT_MS_MAX)

    driver.queue.state.advance(START_MS + VISIBILITY_TIMEOUT_MS_MAX)

    assert driver.queue.state.counts() == (3, 0, 0, 0)
