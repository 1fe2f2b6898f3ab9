"""Removal of messages: expiry, cancellation, purge and trim."""

import pytest

from tests.queue_layer.driver import SECOND, START_MS, TARGET, Driver, offsets_of
from tidelog.queue_layer.commands import remove
from tidelog.queue_layer.commands.remove import expiry_end, removal_end
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.queues import Refused, Run, SettleAction

MINUTE_MS = 60_000
SHORT = QueueConfig(retention_ms=MINUTE_MS, dead_letter_target=TARGET)


@pytest.mark.statement("b13", "b14")
def test_messages_past_retention_expire_even_in_flight() -> None:
    """Statements 13 and 14: neither receives nor extensions make a message younger."""
    driver = Driver(SHORT, records=10)
    received = driver.take(4)
    driver.wait(MINUTE_MS - SECOND)
    driver.settle(received, SettleAction.EXTEND, delay_ms=3600 * SECOND)
    driver.wait(SECOND)

    driver.do(driver.queue.expire(8, now_ms=driver.now_ms))

    assert driver.counts() == {"visible": 2}
    assert driver.queue.state.low_water_mark == 8
    assert driver.delete(received).refused == []
    driver.wait(3600 * SECOND)
    assert driver.offsets() == [8, 9]


@pytest.mark.difference(
    "Messages",
    cloud="The retention of a delayed message counts from its send.",
    here="It counts from the end of the delay.",
    why="Native delays may be longer than a retention. Those of SQS are 15 min at most.",
)
@pytest.mark.statement("b14")
def test_retention_of_a_scheduled_message_starts_at_its_delivery_time() -> None:
    driver = Driver(SHORT, records=1)
    driver.came(1, deliver_at_ms=START_MS + 2 * MINUTE_MS)
    driver.came(1)
    driver.wait(MINUTE_MS)

    driver.do(driver.queue.expire(3, now_ms=driver.now_ms))

    assert driver.counts() == {"delayed": 1}
    driver.wait(2 * MINUTE_MS - 1)
    driver.do(driver.queue.expire(3, now_ms=driver.now_ms))
    assert driver.counts() == {"visible": 1}
    driver.wait(1)
    driver.do(driver.queue.expire(3, now_ms=driver.now_ms))
    assert driver.counts() == {}


@pytest.mark.statement("b14")
def test_a_scheduled_message_behind_others_does_not_expire_early() -> None:
    driver = Driver(SHORT, records=1)
    driver.came(1, deliver_at_ms=START_MS + MINUTE_MS)
    driver.wait(MINUTE_MS)

    driver.do(driver.queue.expire(2, now_ms=driver.now_ms))

    assert driver.counts() == {"visible": 1}
    driver.fail_over()
    driver.do(driver.queue.expire(2, now_ms=driver.now_ms))
    assert driver.offsets() == [1]


@pytest.mark.statement("b14")
def test_dead_letters_do_not_expire() -> None:
    driver = Driver(SHORT, records=2)
    driver.settle(driver.take(1), SettleAction.REJECT)
    driver.wait(MINUTE_MS)

    driver.do(driver.queue.expire(2, now_ms=driver.now_ms))

    assert driver.counts() == {"dead": 1}


def test_an_expiry_without_old_messages_writes_nothing() -> None:
    driver = Driver(SHORT, records=2)

    assert driver.queue.expire(0, now_ms=driver.now_ms).entries == []


def test_a_scheduled_message_can_be_cancelled() -> None:
    driver = Driver(records=1)
    driver.came(3, deliver_at_ms=START_MS + SECOND)
    assert driver.counts() == {"visible": 1, "delayed": 3}

    assert driver.cancel([(2, 1)]) == []

    assert driver.counts() == {"visible": 1, "delayed": 2}
    driver.wait(SECOND)
    assert sorted(driver.offsets()) == [0, 1, 3]
    driver.fail_over()
    assert driver.counts() == {"in_flight": 3}


def test_a_message_that_is_not_delayed_cannot_be_cancelled() -> None:
    driver = Driver(SHORT, records=5)
    driver.settle(driver.take(1), SettleAction.REJECT)
    driver.delete(driver.take(1))
    driver.take(1)

    refused = driver.cancel([(0, 9)])

    found: dict[int, list[Run]] = {}
    for one in refused:
        found.setdefault(one.error.code, []).extend(one.runs)
    assert {code: sorted(runs) for code, runs in found.items()} == {
        ErrorCode.MESSAGE_GONE: [(0, 1), (1, 1), (5, 4)],
        ErrorCode.RECEIPT_EXPIRED: [(2, 1)],
        ErrorCode.INVALID_REQUEST: [(3, 2)],
    }
    assert driver.counts() == {"visible": 2, "in_flight": 1, "dead": 1}


def test_a_scheduled_message_whose_time_has_come_cannot_be_cancelled() -> None:
    driver = Driver(records=1)
    driver.came(1, deliver_at_ms=START_MS + SECOND)
    driver.wait(SECOND)

    (refused,) = driver.cancel([(1, 1)])

    assert refused.error.code == ErrorCode.INVALID_REQUEST
    assert driver.counts() == {"visible": 2}


def test_a_message_that_was_released_with_a_delay_can_be_cancelled() -> None:
    driver = Driver(records=2)
    driver.settle(driver.take(1), SettleAction.RELEASE, delay_ms=SECOND)

    assert driver.cancel([(0, 1)]) == []

    driver.wait(SECOND)
    assert driver.offsets() == [1]


@pytest.mark.parametrize("runs", [[(0, 60)], [(n, 1) for n in range(0, 60, 3)], [(58, 1)], []])
def test_cancelling_very_many_messages_in_parts_gives_the_same_result(
    monkeypatch: pytest.MonkeyPatch, runs: list[Run]
) -> None:
    def drivers() -> Driver:
        driver = Driver()
        for number in range(30):
            driver.came(fields=[RecordFields(deliver_at_ms=START_MS + SECOND + number)])
            driver.came(fields=[RecordFields(is_chunk=number % 2 == 0)])
        driver.take(3)
        return driver

    whole, parts = drivers(), drivers()
    refused = whole.cancel(runs)
    monkeypatch.setattr(remove, "PIECES_AT_ONCE", 4)
    entries = len(parts.journal)

    refused_in_parts = parts.cancel(runs)

    assert len(parts.journal) >= entries + 5 or not runs
    assert places(refused_in_parts) == places(refused)
    for driver in (whole, parts):
        driver.fail_over()
    assert parts.counts() == whole.counts()
    assert parts.queue.peek([], 0, 1000) == whole.queue.peek([], 0, 1000)


def places(refused: list[Refused]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for each in refused:
        found.setdefault(each.error.code, set()).update(offsets_of(each.runs))
    return found


@pytest.mark.parametrize("is_fifo", [False, True])
def test_very_many_messages_are_purged_and_trimmed_in_parts(
    monkeypatch: pytest.MonkeyPatch, *, is_fifo: bool
) -> None:
    monkeypatch.setattr(remove, "PIECES_AT_ONCE", 3)
    driver = Driver(QueueConfig(is_fifo=is_fifo), records=20)
    for _ in range(9):
        driver.take(1)
    queue, ends, at = driver.queue, list[int](), 0

    while at < 15:
        at = removal_end(queue.state, at, 15)
        ends.append(at)
        driver.do(queue.trim(at, now_ms=driver.now_ms))
    assert ends == [3, 6, 15]
    assert driver.counts() == {"visible": 5}

    assert driver.purge() == 5
    assert driver.counts() == {}


def test_a_part_is_limited_in_messages_where_each_costs_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remove, "MESSAGES_AT_ONCE", 4)
    driver = Driver(QueueConfig(is_fifo=True), records=20, make_order=FifoOrder)

    assert removal_end(driver.queue.state, 0, 19) == 4
    assert expiry_end(driver.queue.state, 0, 20) == 4
    # All known messages can be dropped at once.
    assert removal_end(driver.queue.state, 0, 20) == 20


@pytest.mark.statement("b70")
def test_a_purge_keeps_messages_after_its_end() -> None:
    driver = Driver(records=10)
    driver.take(4)

    assert driver.do(driver.queue.purge(6, now_ms=driver.now_ms)) == 6

    assert driver.offsets() == [6, 7, 8, 9]
