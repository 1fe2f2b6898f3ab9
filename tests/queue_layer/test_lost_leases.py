"""Leases lost in a failover: possible in queues with `receive_acks = leader`."""

import pytest

from tests.queue_layer.driver import SECOND, START_MS, Driver, offsets_of
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.queues import PartitionReceived, SettleAction, Settled

PART = RecordFields(is_chunk=True)
MESSAGE = RecordFields()


def lost_lease(driver: Driver, max_messages: int = 10) -> PartitionReceived:
    """Receive, and fail over to a broker without that entry."""
    received = driver.take(max_messages)
    driver.fail_over(lost=1)
    return received


def refusals(settled: Settled) -> dict[int, ErrorCode]:
    """Return the error of each message that was refused."""
    assert settled.error is None
    return {
        offset: ErrorCode(refused.error.code)
        for refused in settled.refused
        for offset in offsets_of(refused.runs)
    }


def test_a_lost_lease_deletes_its_message() -> None:
    driver = Driver(records=5)
    received = lost_lease(driver)

    assert refusals(driver.delete(received, 0, 2, 3)) == {}

    assert driver.counts() == {"visible": 2}
    driver.fail_over()
    assert driver.offsets() == [1, 4]


def test_a_lost_lease_deletes_a_message_that_was_received_again() -> None:
    driver = Driver(records=5)
    received = lost_lease(driver)
    driver.take(3)

    assert refusals(driver.delete(received)) == {}

    assert driver.counts() == {}
    assert driver.queue.state.low_water_mark == 5


def test_a_delete_by_a_lost_lease_keeps_passed_messages() -> None:
    driver = Driver()
    driver.came(1, deliver_at_ms=START_MS + 40 * SECOND)
    driver.came(4, fields=[MESSAGE, PART, PART, MESSAGE])
    received = lost_lease(driver)

    assert refusals(driver.delete(received, 4)) == {}

    assert driver.counts() == {"visible": 1, "delayed": 1}
    driver.fail_over()
    assert driver.counts() == {"visible": 1, "delayed": 1}
    assert driver.offsets() == [1]


@pytest.mark.parametrize(
    "config", [QueueConfig(require_latest_receipt=True), QueueConfig(is_fifo=True)]
)
def test_a_fenced_queue_refuses_a_delete_by_a_lost_lease(
    config: QueueConfig,
) -> None:
    driver = Driver(config, records=1)
    received = lost_lease(driver)

    assert refusals(driver.delete(received)) == {0: ErrorCode.RECEIPT_EXPIRED}

    assert driver.offsets() == [0]


@pytest.mark.parametrize(
    "config", [QueueConfig(require_latest_receipt=True), QueueConfig(is_fifo=True)]
)
@pytest.mark.parametrize("has_snapshot", [False, True])
def test_lease_ids_of_lost_leases_are_not_reused(
    config: QueueConfig, *, has_snapshot: bool
) -> None:
    driver = Driver(config, records=1)
    lost = lost_lease(driver)
    held = driver.take(timeout_ms=60 * SECOND)
    if has_snapshot:
        for frame in driver.queue.snapshot(now_ms=driver.now_ms):
            driver.append(frame)
    driver.fail_over()

    for action in SettleAction:
        settled = driver.settle(lost, action, delay_ms=0)
        assert refusals(settled) == {0: ErrorCode.RECEIPT_EXPIRED}

    assert refusals(driver.delete(held)) == {}


def test_a_lease_lost_before_a_seek_is_void_for_every_leader() -> None:
    driver = Driver(records=1)
    received = lost_lease(driver)
    driver.do(driver.queue.seek(0, now_ms=driver.now_ms))
    driver.tell_again()

    for _ in range(2):
        assert refusals(driver.delete(received)) == {0: ErrorCode.RECEIPT_EXPIRED}
        driver.fail_over()
    assert driver.offsets() == [0]


@pytest.mark.parametrize(
    "action", [action for action in SettleAction if action is not SettleAction.DELETE]
)
def test_a_lost_lease_can_only_delete(action: SettleAction) -> None:
    driver = Driver(records=1)
    received = lost_lease(driver)

    settled = driver.settle(received, action, delay_ms=0)

    assert refusals(settled) == {0: ErrorCode.RECEIPT_EXPIRED}
    assert "lost" in settled.refused[0].error.message
    assert driver.offsets() == [0]


def test_nothing_is_deleted_by_a_lost_lease_before_all_records_up_to_it_are_known() -> None:
    driver = Driver()
    driver.came(1, deliver_at_ms=START_MS + 40 * SECOND)
    driver.came(3)
    received = driver.take()
    driver.fail_over(lost=1, is_told=False)
    entries = len(driver.journal)

    error = driver.delete(received).error

    assert error is not None
    assert error.code == ErrorCode.LEADER_NOT_AVAILABLE
    assert len(driver.journal) == entries
    driver.tell_again()
    assert refusals(driver.delete(received)) == {}
    assert driver.counts() == {"delayed": 1}


def test_a_receipt_from_before_a_seek_deletes_nothing() -> None:
    driver = Driver(records=3)
    received = driver.take()
    driver.do(driver.queue.seek(0, now_ms=driver.now_ms))
    driver.tell_again()

    expired = dict.fromkeys(range(3), ErrorCode.RECEIPT_EXPIRED)
    assert refusals(driver.delete(received)) == expired
    driver.fail_over()
    assert refusals(driver.delete(received)) == expired
    assert driver.offsets() == [0, 1, 2]
