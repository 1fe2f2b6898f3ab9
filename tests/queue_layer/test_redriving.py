"""A redrive moves what was there when it began, and goes on wherever it was."""

import pytest

from queue_layer.entries import Target
from queue_layer.redrive import RedriveStatus
from queue_layer.redriving import RedriveCommand
from tests.queue_layer.driver import Driver
from wire.errors import InvalidRequestError
from wire.queues import Run

ORDERS: Target = (b"orders", 1)
BILLS: Target = (b"bills", 0)


def start(driver: Driver) -> int:
    command = RedriveCommand(messages_per_s=5, origin_queue="orders")
    return driver.do(driver.queue.start_redrive(command, now_ms=driver.now_ms))


def progress(driver: Driver, moves: list[tuple[Target, list[Run]]], next_offset: int) -> None:
    outcome = driver.queue.redrive_progressed(moves, next_offset, now_ms=driver.now_ms)
    driver.do(outcome)


def status(driver: Driver) -> tuple[RedriveStatus, int, int]:
    redrive = driver.queue.redrive
    assert redrive is not None
    return redrive.status, redrive.moved, redrive.to_move


def test_messages_go_where_each_of_them_came_from() -> None:
    """Statements 59 and 60: the oldest first, and what came after it began stays."""
    driver = Driver(records=6)

    assert start(driver) == 6
    driver.came(2)
    assert driver.queue.redrive_candidates(4) == ([(0, 4)], 4)
    progress(driver, [(ORDERS, [(0, 1), (2, 1)]), (BILLS, [(1, 1)])], 4)

    assert driver.counts() == {"visible": 5, "dead": 3}
    assert [driver.queue.next_move(target) for target in driver.queue.move_targets] == [
        driver.queue.next_move(BILLS),
        driver.queue.next_move(ORDERS),
    ]
    assert driver.queue.redrive_candidates(4) == ([(4, 2)], 6)
    progress(driver, [(ORDERS, [(4, 2)])], 6)
    assert status(driver) == (RedriveStatus.COMPLETED, 5, 6)
    assert driver.queue.redrive_candidates(4) == ([], 0)
    assert driver.offsets() == [3, 6, 7]


def test_a_redrive_goes_on_where_another_broker_left_it() -> None:
    driver = Driver(records=6)
    start(driver)
    progress(driver, [(ORDERS, [(0, 2)])], 2)

    driver.fail_over()

    redrive = driver.queue.redrive
    assert redrive is not None
    assert (redrive.messages_per_s, redrive.origin_queue) == (5, "orders")
    assert driver.queue.redrive_candidates(10) == ([(2, 4)], 6)
    assert status(driver) == (RedriveStatus.RUNNING, 2, 6)


def test_a_cancelled_redrive_leaves_the_rest_where_it_is() -> None:
    """Statement 61."""
    driver = Driver(records=6)
    start(driver)
    progress(driver, [(ORDERS, [(0, 2)])], 2)

    driver.do(driver.queue.end_redrive(RedriveStatus.CANCELLED, "enough", now_ms=driver.now_ms))

    assert status(driver) == (RedriveStatus.CANCELLED, 2, 6)
    assert driver.counts() == {"visible": 4, "dead": 2}
    entries = len(driver.journal)
    progress(driver, [(ORDERS, [(2, 2)])], 4)
    driver.do(driver.queue.end_redrive(RedriveStatus.FAILED, "late", now_ms=driver.now_ms))
    assert len(driver.journal) == entries


def test_there_is_one_redrive_at_a_time() -> None:
    """Statement 59."""
    driver = Driver(records=2)
    start(driver)

    with pytest.raises(InvalidRequestError, match="running"):
        start(driver)

    progress(driver, [], 2)
    start(driver)


def test_a_message_that_somebody_got_meanwhile_stays() -> None:
    driver = Driver(records=4)
    start(driver)
    runs, next_offset = driver.queue.redrive_candidates(4)
    driver.offsets(2)

    progress(driver, [(ORDERS, runs)], next_offset)

    assert driver.counts() == {"leased": 2, "dead": 2}


def test_messages_of_a_redrive_go_in_batches() -> None:
    driver = Driver(records=250)
    start(driver)
    runs, next_offset = driver.queue.redrive_candidates(1000)

    progress(driver, [(ORDERS, runs)], next_offset)

    batch = driver.queue.next_move(ORDERS)
    assert batch is not None
    assert (batch.runs, batch.sequence) == ([(0, 100)], 0)
    letters = driver.queue.dead_letters(batch)
    assert [(one.first_offset, one.count, one.receive_count) for one in letters] == [(0, 100, 0)]
    driver.do(driver.queue.moved(batch, 100, now_ms=driver.now_ms))
    batch = driver.queue.next_move(ORDERS)
    assert batch is not None
    assert (batch.runs, batch.sequence) == ([(100, 100)], 100)
