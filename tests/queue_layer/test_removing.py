"""Messages that are too old, and those that are not wanted any more."""

from queue_layer.config import MINUTE_MS, QueueConfig
from tests.queue_layer.driver import SECOND, START_MS, TARGET, Driver
from wire.error_code import ErrorCode
from wire.queues import Run, SettleAction

SHORT = QueueConfig(retention_ms=MINUTE_MS, dead_letter_target=TARGET)


def test_what_is_too_old_is_gone_leased_or_not() -> None:
    """Statements 13 and 14: neither receives nor extensions make a message younger."""
    driver = Driver(SHORT, records=10)
    received = driver.take(4)
    driver.wait(MINUTE_MS - SECOND)
    driver.settle(received, SettleAction.EXTEND, delay_ms=3600 * SECOND)
    driver.wait(SECOND)

    driver.do(driver.queue.expire(8, now_ms=driver.now_ms))

    assert driver.counts() == {"visible": 2}
    assert driver.queue.low_water_mark == 8
    assert driver.delete(received).refused == []
    driver.wait(3600 * SECOND)
    assert driver.offsets() == [8, 9]


def test_a_scheduled_message_is_kept_for_as_long_as_others_from_its_time_on() -> None:
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


def test_a_scheduled_message_that_waits_behind_others_is_kept_too() -> None:
    driver = Driver(SHORT, records=1)
    driver.came(1, deliver_at_ms=START_MS + MINUTE_MS)
    driver.wait(MINUTE_MS)

    driver.do(driver.queue.expire(2, now_ms=driver.now_ms))

    assert driver.counts() == {"visible": 1}
    driver.fail_over()
    driver.do(driver.queue.expire(2, now_ms=driver.now_ms))
    assert driver.offsets() == [1]


def test_dead_letters_do_not_expire() -> None:
    driver = Driver(SHORT, records=2)
    driver.settle(driver.take(1), SettleAction.REJECT)
    driver.wait(MINUTE_MS)

    driver.do(driver.queue.expire(2, now_ms=driver.now_ms))

    assert driver.counts() == {"dead": 1}


def test_when_nothing_is_too_old_nothing_is_written() -> None:
    driver = Driver(SHORT, records=2)

    assert driver.queue.expire(0, now_ms=driver.now_ms).entries == []


def test_a_scheduled_message_can_be_cancelled() -> None:
    driver = Driver(records=1)
    driver.came(3, deliver_at_ms=START_MS + SECOND)
    assert driver.counts() == {"visible": 1, "delayed": 3}

    assert driver.do(driver.queue.cancel([(2, 1)], now_ms=driver.now_ms)) == []

    assert driver.counts() == {"visible": 1, "delayed": 2}
    driver.wait(SECOND)
    assert sorted(driver.offsets()) == [0, 1, 3]
    driver.fail_over()
    assert driver.counts() == {"leased": 3}


def test_a_message_that_is_not_delayed_cannot_be_cancelled() -> None:
    driver = Driver(SHORT, records=5)
    driver.settle(driver.take(1), SettleAction.REJECT)
    driver.delete(driver.take(1))
    driver.take(1)

    refused = driver.do(driver.queue.cancel([(0, 9)], now_ms=driver.now_ms))

    found: dict[int, list[Run]] = {}
    for one in refused:
        found.setdefault(one.error.code, []).extend(one.runs)
    assert {code: sorted(runs) for code, runs in found.items()} == {
        ErrorCode.MESSAGE_GONE: [(0, 1), (1, 1), (5, 4)],
        ErrorCode.RECEIPT_EXPIRED: [(2, 1)],
        ErrorCode.INVALID_REQUEST: [(3, 2)],
    }
    assert driver.counts() == {"visible": 2, "leased": 1, "dead": 1}


def test_a_scheduled_message_whose_time_has_come_cannot_be_cancelled() -> None:
    driver = Driver(records=1)
    driver.came(1, deliver_at_ms=START_MS + SECOND)
    driver.wait(SECOND)

    (refused,) = driver.do(driver.queue.cancel([(1, 1)], now_ms=driver.now_ms))

    assert refused.error.code == ErrorCode.INVALID_REQUEST
    assert driver.counts() == {"visible": 2}


def test_a_message_that_was_released_with_a_delay_can_be_cancelled() -> None:
    driver = Driver(records=2)
    driver.settle(driver.take(1), SettleAction.RELEASE, delay_ms=SECOND)

    assert driver.do(driver.queue.cancel([(0, 1)], now_ms=driver.now_ms)) == []

    driver.wait(SECOND)
    assert driver.offsets() == [1]
