"""Redrive: moves the messages that exist at its start, and continues after a failover."""

import pytest

from tests.queue_layer.driver import Driver
from tidelog.queue_layer.commands.redrive import RedriveCommand
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.queue_journal import BackgroundWork, Target
from tidelog.wire.messages.queues import Run, SettleAction
from tidelog.wire.messages.redrives import RedriveStatus

ORDERS: Target = (b"orders", 1)
BILLS: Target = (b"bills", 0)


def start(driver: Driver) -> int:
    command = RedriveCommand(messages_per_s=5, origin_queue="orders")
    return driver.do(driver.queue.start_redrive(command, now_ms=driver.now_ms))


def progress(driver: Driver, moves: list[tuple[Target, list[Run]]], next_offset: int) -> None:
    outcome = driver.queue.redrive_progressed(moves, next_offset, now_ms=driver.now_ms)
    driver.do(outcome)


def work_of(driver: Driver) -> BackgroundWork:
    return driver.queue.state.background_work


def status(driver: Driver) -> tuple[RedriveStatus, int, int]:
    redrive = driver.queue.state.redrive
    assert redrive is not None
    return redrive.status, redrive.taken, redrive.to_move


@pytest.mark.statement("b59", "b60")
def test_a_redrive_moves_messages_to_their_sources() -> None:
    """Statements 59 and 60: the oldest first, and messages that come after its start stay."""
    driver = Driver(records=6)

    assert start(driver) == 6
    driver.came(2)
    assert driver.queue.redrive_candidates(4) == ([(0, 4)], 4)
    progress(driver, [(ORDERS, [(0, 1), (2, 1)]), (BILLS, [(1, 1)])], 4)

    assert driver.counts() == {"visible": 5, "dead": 3}
    assert [
        driver.queue.state.moves.next_batch(target) for target in driver.queue.state.moves.targets()
    ] == [
        driver.queue.state.moves.next_batch(BILLS),
        driver.queue.state.moves.next_batch(ORDERS),
    ]
    assert driver.queue.redrive_candidates(4) == ([(4, 2)], 6)
    progress(driver, [(ORDERS, [(4, 2)])], 6)
    assert status(driver) == (RedriveStatus.COMPLETED, 5, 6)
    assert driver.queue.redrive_candidates(4) == ([], 0)
    assert driver.offsets() == [3, 6, 7]


@pytest.mark.statement("b61")
def test_a_redrive_continues_after_a_failover() -> None:
    driver = Driver(records=6)
    start(driver)
    progress(driver, [(ORDERS, [(0, 2)])], 2)

    driver.fail_over()

    redrive = driver.queue.state.redrive
    assert redrive is not None
    assert (redrive.messages_per_s, redrive.origin_queue) == (5, "orders")
    assert driver.queue.redrive_candidates(10) == ([(2, 4)], 6)
    assert status(driver) == (RedriveStatus.RUNNING, 2, 6)


@pytest.mark.statement("b61")
def test_a_cancelled_redrive_leaves_the_rest_in_the_queue() -> None:
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


@pytest.mark.statement("b59")
def test_there_is_one_redrive_at_a_time() -> None:
    """Statement 59."""
    driver = Driver(records=2)
    start(driver)

    with pytest.raises(InvalidRequestError, match="running"):
        driver.queue.start_redrive(RedriveCommand(), now_ms=driver.now_ms)

    progress(driver, [], 2)
    start(driver)


def test_starting_the_same_redrive_again_changes_nothing() -> None:
    driver = Driver(records=3)
    start(driver)
    progress(driver, [(ORDERS, [(0, 1)])], 1)
    entries = len(driver.journal)

    assert start(driver) == 3
    assert len(driver.journal) == entries


def test_a_redrive_skips_messages_received_meanwhile() -> None:
    driver = Driver(records=4)
    start(driver)
    runs, next_offset = driver.queue.redrive_candidates(4)
    driver.offsets(2)

    progress(driver, [(ORDERS, runs)], next_offset)

    assert driver.counts() == {"in_flight": 2, "dead": 2}


def test_a_redrive_moves_messages_in_batches() -> None:
    driver = Driver(records=250)
    start(driver)
    runs, next_offset = driver.queue.redrive_candidates(1000)

    progress(driver, [(ORDERS, runs)], next_offset)

    batch = driver.queue.state.moves.next_batch(ORDERS)
    assert batch is not None
    assert (batch.runs, batch.sequence) == ([(0, 100)], 0)
    letters = driver.queue.state.dead_letters(batch)
    assert [(one.first_offset, one.count, one.receive_count) for one in letters] == [(0, 100, 0)]
    driver.do(driver.queue.moved(batch, 100, now_ms=driver.now_ms))
    batch = driver.queue.state.moves.next_batch(ORDERS)
    assert batch is not None
    assert (batch.runs, batch.sequence) == ([(100, 100)], 100)


def test_a_redrive_counts_the_outcomes_of_its_messages() -> None:
    driver = Driver(records=10)
    start(driver)
    outcome = driver.queue.redrive_progressed(
        [(ORDERS, [(0, 2)]), (BILLS, [(2, 3)])], 6, skipped=1, now_ms=driver.now_ms
    )
    driver.do(outcome)
    for target, is_good in ((ORDERS, True), (BILLS, False)):
        batch = driver.queue.state.moves.next_batch(target)
        assert batch is not None
        if is_good:
            driver.do(driver.queue.moved(batch, 1, now_ms=driver.now_ms))
        else:
            driver.do(driver.queue.move_failed(batch, 2, "too large", now_ms=driver.now_ms))

    driver.fail_over()

    redrive = driver.queue.state.redrive
    assert redrive is not None
    assert (redrive.taken, redrive.skipped, redrive.left) == (5, 1, 4)
    assert (redrive.moved, redrive.failed) == (1, 2)
    assert driver.queue.state.moves.count_of(redrive.number) == 2
    driver.now_ms += 500
    progress(driver, [], 10)
    redrive = driver.queue.state.redrive
    assert redrive is not None
    assert (redrive.left, redrive.ended_ms) == (0, driver.now_ms)


def test_a_redrive_does_not_count_moves_of_an_earlier_one() -> None:
    driver = Driver(records=4)
    start(driver)
    progress(driver, [(ORDERS, [(0, 2)])], 2)
    driver.do(driver.queue.end_redrive(RedriveStatus.CANCELLED, now_ms=driver.now_ms))
    start(driver)

    batch = driver.queue.state.moves.next_batch(ORDERS)
    assert batch is not None
    driver.do(driver.queue.moved(batch, 2, now_ms=driver.now_ms))

    redrive = driver.queue.state.redrive
    assert redrive is not None
    assert (redrive.to_move, redrive.taken, redrive.moved) == (2, 0, 0)
    (before,) = driver.queue.state.redrives.earlier
    assert (before.to_move, before.taken, before.moved) == (4, 2, 2)


def start_as(driver: Driver, redrive_id: bytes, note: str = "") -> int:
    command = RedriveCommand(redrive_id=redrive_id, note=note)
    return driver.do(driver.queue.start_redrive(command, now_ms=driver.now_ms))


def test_a_start_with_the_id_of_a_redrive_starts_nothing() -> None:
    """A client whose answer was lost repeats its call, also after the redrive has ended."""
    driver = Driver(records=4)

    assert [start_as(driver, b"one"), start_as(driver, b"one")] == [4, 4]
    progress(driver, [(ORDERS, [(0, 2)])], 4)
    start_as(driver, b"one")

    assert status(driver) == (RedriveStatus.COMPLETED, 2, 4)
    assert start_as(driver, b"two") == 2
    assert start_as(driver, b"one") == 4
    assert status(driver) == (RedriveStatus.RUNNING, 0, 2)


def test_a_redrive_to_sources_only_is_another_one() -> None:
    driver = Driver(records=4)
    command = RedriveCommand(only_sources=True)
    driver.do(driver.queue.start_redrive(command, now_ms=driver.now_ms))

    driver.fail_over()

    redrive = driver.queue.state.redrive
    assert redrive is not None
    assert redrive.only_sources
    with pytest.raises(InvalidRequestError, match="another redrive"):
        driver.queue.start_redrive(RedriveCommand(), now_ms=driver.now_ms)


def test_a_start_with_another_id_is_refused_while_a_redrive_runs() -> None:
    driver = Driver(records=4)
    start_as(driver, b"one")

    with pytest.raises(InvalidRequestError, match="another redrive"):
        start_as(driver, b"two")

    assert start_as(driver, b"") == 4


def test_the_last_ten_redrives_are_remembered_under_the_next_leader() -> None:
    driver = Driver(records=1)
    for number in range(12):
        start_as(driver, b"%d" % number, f"note {number}")
        progress(driver, [], 1)

    driver.fail_over()

    redrives = driver.queue.state.redrives
    assert redrives.latest is not None
    kept = [*redrives.earlier, redrives.latest]
    assert [each.note for each in kept] == [f"note {number}" for number in range(2, 12)]
    assert [each.number for each in kept] == list(range(3, 13))
    assert {each.status for each in kept} == {RedriveStatus.COMPLETED}


@pytest.mark.parametrize("end", [6, 10])
def test_a_redrive_that_lost_a_destination_has_failed_when_all_was_looked_at(end: int) -> None:
    driver = Driver(records=10)
    start(driver)
    progress(driver, [(ORDERS, [(0, 6)])], end)

    driver.do(driver.queue.redrive_lost_destination(1, "gone", now_ms=driver.now_ms))
    driver.do(driver.queue.redrive_lost_destination(1, "again", now_ms=driver.now_ms))
    driver.fail_over()
    progress(driver, [(BILLS, [(6, 4)])], 10)

    redrive = driver.queue.state.redrive
    assert redrive is not None
    assert (redrive.status, redrive.reason) == (RedriveStatus.FAILED, "gone")
    assert redrive.taken == (6 if end == 10 else 10)


def test_a_cancelled_redrive_stays_cancelled_when_its_destination_is_lost() -> None:
    driver = Driver(records=10)
    start(driver)
    driver.do(driver.queue.end_redrive(RedriveStatus.CANCELLED, now_ms=driver.now_ms))

    driver.do(driver.queue.redrive_lost_destination(1, "gone", now_ms=driver.now_ms))

    assert status(driver) == (RedriveStatus.CANCELLED, 0, 10)


def test_a_queue_reports_its_background_work() -> None:
    driver = Driver(records=2)
    assert work_of(driver) is BackgroundWork.NOTHING

    start(driver)
    assert work_of(driver) is BackgroundWork.MOVES
    progress(driver, [(ORDERS, [(0, 1)])], 2)
    assert work_of(driver) is BackgroundWork.MOVES
    batch = driver.queue.state.moves.next_batch(ORDERS)
    assert batch is not None
    driver.do(driver.queue.moved(batch, 1, now_ms=driver.now_ms))
    assert work_of(driver) is BackgroundWork.NOTHING

    driver.settle(driver.take(), SettleAction.REJECT)
    assert work_of(driver) is BackgroundWork.KEPT
