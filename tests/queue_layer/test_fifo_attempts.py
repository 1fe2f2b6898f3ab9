"""Repeated receives of FIFO queues. Numbers in docstrings: docs/queue-statements.md."""

import pytest

from tests.queue_layer.driver import SECOND, START_MS, Driver
from tests.queue_layer.fifo_driver import fifo, offsets, send
from tidelog.queue_layer.commands.receive import ReceiveCommand
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.queue_journal import encode
from tidelog.wire.messages.queues import VISIBILITY_TIMEOUT_MS_MAX, PartitionReceived, SettleAction


def attempt(driver: Driver, name: str, max_messages: int = 10) -> PartitionReceived:
    """Receive with an attempt id."""
    command = ReceiveCommand(max_messages=max_messages, attempt_id=name.encode())
    plan = driver.queue.plan(command, now_ms=driver.now_ms)
    taken = [(run.first_offset, run.count) for run in plan]
    return driver.do(driver.queue.receive(plan, taken, now_ms=driver.now_ms))


@pytest.mark.statement("b36")
def test_a_repeated_receive_gets_the_same_messages_receipt_and_a_new_lease() -> None:
    """Statement 36."""
    driver = fifo("aabb")
    first = attempt(driver, "x", 3)
    driver.wait(29 * SECOND)

    again = attempt(driver, "x", 3)

    assert offsets(again) == offsets(first) == [0, 1, 2]
    assert again.receipt == first.receipt
    assert {run.receive_count for run in again.runs} == {1}
    assert again.deadline_ms == first.deadline_ms + 29 * SECOND
    driver.wait(29 * SECOND)
    assert driver.delete(again).refused == []
    assert driver.offsets() == [3]


@pytest.mark.statement("b36")
@pytest.mark.parametrize(
    "action",
    [SettleAction.DELETE, SettleAction.EXTEND, SettleAction.RELEASE, SettleAction.REJECT],
)
def test_a_receive_is_not_repeated_after_a_settlement_of_its_messages(
    action: SettleAction,
) -> None:
    """Statement 36."""
    driver = fifo("aab")
    first = attempt(driver, "x", 2)
    driver.settle(first, action, 1, delay_ms=60 * SECOND)

    again = attempt(driver, "x")

    assert offsets(again) == [2]
    assert again.receipt != first.receipt


@pytest.mark.statement("b36")
def test_a_receive_is_not_repeated_after_its_leases() -> None:
    """Statement 36."""
    driver = fifo("ab")
    first = attempt(driver, "x", 1)
    driver.wait(30 * SECOND)

    again = attempt(driver, "x", 1)

    assert offsets(again) == [1]
    assert again.receipt != first.receipt


@pytest.mark.statement("b36")
def test_an_empty_receive_is_not_repeated() -> None:
    """Statement 36."""
    driver = fifo()
    assert offsets(attempt(driver, "x")) == []
    send(driver, "a")

    assert offsets(attempt(driver, "x")) == [0]


@pytest.mark.statement("b36")
def test_a_receive_can_be_repeated_for_five_minutes_across_failovers() -> None:
    """Statement 36."""
    driver = fifo("a")
    first = attempt(driver, "x")
    for _ in range(14):
        driver.wait(20 * SECOND)
        driver.fail_over()
        assert attempt(driver, "x").receipt == first.receipt
    driver.journal = [encode(frame) for frame in driver.queue.snapshot(now_ms=driver.now_ms)]
    driver.fail_over()
    driver.wait(19 * SECOND)
    assert attempt(driver, "x").receipt == first.receipt

    driver.wait(SECOND)

    assert offsets(attempt(driver, "x")) == []


def test_a_repeated_receive_with_changed_messages_gets_nothing() -> None:
    """The reader of the records makes a new plan then."""
    driver = fifo("ab")
    first = attempt(driver, "x", 1)
    plan = driver.queue.plan(ReceiveCommand(max_messages=1, attempt_id=b"x"), now_ms=driver.now_ms)
    driver.delete(first)

    received = driver.do(driver.queue.receive(plan, [(0, 1)], now_ms=driver.now_ms))

    assert received.runs == []
    assert offsets(attempt(driver, "x", 1)) == [1]


def test_repeated_receives_hide_a_message_for_at_most_twelve_hours() -> None:
    """Statement 6."""
    driver = fifo("a")
    command = ReceiveCommand(
        max_messages=1, attempt_id=b"x", visibility_timeout_ms=VISIBILITY_TIMEOUT_MS_MAX
    )
    deadlines_ms: list[int] = []
    for _ in range(2):
        plan = driver.queue.plan(command, now_ms=driver.now_ms)
        received = driver.do(driver.queue.receive(plan, [(0, 1)], now_ms=driver.now_ms))
        deadlines_ms.append(received.deadline_ms)
        driver.wait(SECOND)

    assert deadlines_ms == [START_MS + VISIBILITY_TIMEOUT_MS_MAX] * 2


def test_a_standard_queue_ignores_attempt_ids() -> None:
    driver = Driver(records=2)
    assert offsets(attempt(driver, "x", 1)) == [0]

    assert offsets(attempt(driver, "x", 1)) == [1]


@pytest.mark.parametrize("attempt_id", [b"", b"x" * 17])
def test_an_attempt_id_has_one_to_sixteen_bytes(attempt_id: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        ReceiveCommand(max_messages=1, attempt_id=attempt_id)
