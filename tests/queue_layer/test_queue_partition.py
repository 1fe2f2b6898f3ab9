"""Queue partition, driven as by its shell: loading, time, purge, seek, trim, snapshots."""

import pytest

from tests.queue_layer.driver import SECOND, START_MS, Driver
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queue_journal import decode
from tidelog.wire.messages.queues import SettleAction


def test_a_queue_starts_at_its_seek_offset() -> None:
    driver = Driver()
    driver.do(driver.queue.seek(100, now_ms=driver.now_ms))

    assert (
        driver.queue.state.records_from
        == driver.queue.state.cursor
        == driver.queue.state.low_water_mark
        == 100
    )
    driver.queue.state.on_records(100, 103)
    assert driver.offsets() == [100, 101, 102]


def test_a_queue_is_ready_when_it_knows_all_records_below_its_cursor() -> None:
    driver = Driver(records=5)
    driver.offsets(3)
    queue = driver.new_queue()
    ready = [queue.state.is_ready]

    for data in driver.journal:
        queue.state.apply(decode(data))
    queue.start(driver.now_ms)

    ready.append(queue.state.is_ready)
    assert ready == [False, True]
    assert queue.state.records_from == 3


@pytest.mark.statement("b84")
def test_a_clock_set_back_changes_nothing() -> None:
    """Statement 84."""
    driver = Driver(records=2)
    driver.offsets(1, timeout_ms=10 * SECOND)
    driver.wait(10 * SECOND)
    assert driver.counts() == {"visible": 2}

    driver.now_ms -= 9 * SECOND

    assert driver.counts() == {"visible": 2}
    assert driver.take(1).deadline_ms == START_MS + 40 * SECOND
    driver.fail_over()
    assert driver.counts() == {"visible": 1, "in_flight": 1}


@pytest.mark.statement("b18")
def test_the_next_deadline_is_that_of_leases_and_delays() -> None:
    driver = Driver(records=5)
    deadlines = [driver.queue.state.next_deadline_ms]
    driver.came(fields=[RecordFields(deliver_at_ms=START_MS + 20 * SECOND)])

    driver.offsets(5)

    deadlines.append(driver.queue.state.next_deadline_ms)
    driver.wait(20 * SECOND)
    deadlines.append(driver.queue.state.next_deadline_ms)
    driver.wait(10 * SECOND)
    deadlines.append(driver.queue.state.next_deadline_ms)
    assert deadlines == [None, START_MS + 20 * SECOND, START_MS + 30 * SECOND, None]
    assert driver.counts() == {"visible": 6}


@pytest.mark.statement("b70", "b71")
def test_a_purge_deletes_current_messages_and_keeps_later_ones() -> None:
    """Statement 70."""
    driver = Driver(records=10)
    driver.came(fields=[RecordFields(deliver_at_ms=START_MS + SECOND)])
    received = driver.take(2)
    driver.settle(received, SettleAction.RELEASE, 1, delay_ms=SECOND)
    assert driver.counts() == {"visible": 8, "in_flight": 1, "delayed": 2}

    count = driver.purge()

    assert count == 11
    assert driver.counts() == {}
    assert driver.queue.state.low_water_mark == 11
    driver.came(2)
    driver.wait(60 * SECOND)
    assert driver.offsets() == [11, 12]
    assert driver.delete(received).refused == []


@pytest.mark.statement("b70")
def test_a_purge_of_an_empty_queue_writes_nothing() -> None:
    driver = Driver()
    entries = len(driver.journal)

    assert driver.purge() == 0
    assert len(driver.journal) == entries


def test_a_seek_back_redelivers_deleted_messages() -> None:
    driver = Driver(records=10)
    old = driver.take(10)
    driver.delete(old)

    driver.do(driver.queue.seek(4, now_ms=driver.now_ms))
    driver.tell_again()

    assert driver.counts() == {"visible": 6}
    assert [error.error.code for error in driver.delete(old, 5).refused] == [43]
    assert driver.offsets() == [4, 5, 6, 7, 8, 9]
    assert [error.error.code for error in driver.delete(old, 5).refused] == [43]


def test_a_seek_forward_deletes_earlier_messages() -> None:
    driver = Driver(records=10)
    driver.offsets(3)

    driver.do(driver.queue.seek(8, now_ms=driver.now_ms))
    driver.tell_again()
    driver.wait(60 * SECOND)

    assert driver.queue.state.low_water_mark == 8
    assert driver.offsets() == [8, 9]


@pytest.mark.statement("b13")
def test_messages_trimmed_from_the_log_are_gone_even_in_flight() -> None:
    """Statement 13."""
    driver = Driver(records=10)
    received = driver.take(4)

    driver.do(driver.queue.trim(6, now_ms=driver.now_ms))

    assert driver.counts() == {"visible": 4}
    assert driver.queue.state.low_water_mark == 6
    driver.wait(60 * SECOND)
    assert driver.delete(received).refused == []
    assert driver.offsets() == [6, 7, 8, 9]


def test_a_trim_of_nothing_writes_nothing() -> None:
    driver = Driver(records=10)
    driver.offsets(2)
    entries = len(driver.journal)

    driver.do(driver.queue.trim(0, now_ms=driver.now_ms))

    assert len(driver.journal) == entries


def test_a_log_that_starts_after_all_known_messages_can_be_served() -> None:
    driver = Driver(records=10)
    driver.offsets(2)
    driver.fail_over()
    queue = driver.new_queue()
    for data in driver.journal:
        queue.state.apply(decode(data))
    queue.start(driver.now_ms)
    driver.queue = queue

    driver.do(queue.trim(50, now_ms=driver.now_ms))

    assert queue.state.records_from == 50
    queue.state.on_records(50, 53)
    assert driver.offsets() == [50, 51, 52]


def test_a_snapshot_replaces_the_earlier_journal() -> None:
    driver = Driver(records=30)
    received = driver.take(10, holder="me")
    driver.delete(received, 3, 4, 8)
    driver.settle(received, SettleAction.RELEASE, 5, delay_ms=9 * SECOND, reason="no luck")
    before = driver.counts()
    size = len(driver.journal)

    for frame in driver.queue.snapshot(now_ms=driver.now_ms):
        driver.append(frame)
    driver.journal = driver.journal[size:]
    driver.fail_over()

    assert driver.counts() == before
    assert driver.delete(received, 0).refused == []
    driver.wait(9 * SECOND)
    assert 5 in driver.offsets(2)


def test_an_unfinished_snapshot_does_not_count() -> None:
    driver = Driver(records=30)
    received = driver.take(10)

    began, *_ = driver.queue.snapshot(now_ms=driver.now_ms)
    driver.append(began)
    driver.delete(received)
    driver.fail_over()

    assert driver.counts() == {"visible": 20}


def test_new_settings_apply_to_existing_messages() -> None:
    driver = Driver(records=3)

    driver.queue.configure(QueueConfig(visibility_timeout_ms=SECOND))

    assert driver.queue.config.visibility_timeout_ms == SECOND
    assert driver.take(1).deadline_ms == START_MS + SECOND


def test_after_a_clock_that_was_ahead_queue_time_stands_still() -> None:
    hour_ms = 3600 * SECOND
    driver = Driver(records=1)
    driver.wait(hour_ms)
    driver.wait(-hour_ms)

    driver.take(timeout_ms=30 * SECOND)
    driver.wait(hour_ms)
    assert driver.counts() == {"in_flight": 1}

    driver.wait(30 * SECOND)
    assert driver.counts() == {"visible": 1}
