"""Peek: messages in all states, without changes."""

from tests.queue_layer.driver import SECOND, START_MS, TARGET, Driver
from tidelog.queue_layer.commands import peek
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queues import MessageState, PeekedRun, SettleAction

LATER = START_MS + 90 * SECOND


def all_states() -> Driver:
    driver = Driver(QueueConfig(dead_letter_target=TARGET), records=8)
    driver.came(2, deliver_at_ms=LATER)
    received = driver.take(6, holder="worker-1")
    driver.delete(received, 0)
    driver.settle(received, SettleAction.REJECT, 1, reason="not a number")
    driver.settle(received, SettleAction.RELEASE, 2, delay_ms=5 * SECOND, reason="busy")
    driver.settle(received, SettleAction.RELEASE, 3, delay_ms=0)
    return driver


def test_a_peek_returns_every_message_in_its_state() -> None:
    driver = all_states()

    seen, next_offset = driver.queue.peek([], 0, 100)

    assert next_offset is None
    assert seen == [
        PeekedRun(1, 1, MessageState.DEAD, 1, 0, "", "not a number"),
        PeekedRun(2, 1, MessageState.DELAYED, 1, START_MS + 5 * SECOND, "", "busy"),
        PeekedRun(3, 1, MessageState.VISIBLE, 1, 0, "", ""),
        PeekedRun(4, 2, MessageState.IN_FLIGHT, 1, START_MS + 30 * SECOND, "worker-1", ""),
        PeekedRun(6, 2, MessageState.VISIBLE, 0, 0, "", ""),
        PeekedRun(8, 2, MessageState.DELAYED, 0, LATER, "", ""),
    ]


def test_a_peek_changes_nothing() -> None:
    driver = all_states()
    entries = len(driver.journal)
    before = driver.counts()

    driver.queue.peek([], 0, 100)

    assert driver.counts() == before
    assert len(driver.journal) == entries


def test_a_peek_continues_at_the_next_offset() -> None:
    driver = all_states()
    everything, _ = driver.queue.peek([], 0, 100)

    found: list[int] = []
    at: int | None = 0
    while at is not None:
        seen, at = driver.queue.peek([], at, 1)
        found.extend(run.first_offset for run in seen)
        assert sum(run.count for run in seen) <= 1

    assert found == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert found[0] == everything[0].first_offset


def test_a_peek_filters_by_state() -> None:
    driver = all_states()

    seen, _ = driver.queue.peek([MessageState.IN_FLIGHT, MessageState.DEAD], 0, 100)

    assert [run.first_offset for run in seen] == [1, 4]


def test_a_peek_over_very_many_other_messages_is_cut() -> None:
    count = 2 * peek.RUNS_BROWSED_MAX + 10
    driver = Driver(records=count)
    for _ in range(0, count, 1000):
        received = driver.take(1000)
        first = received.runs[0].first_offset
        odd = range(first + 1, first + sum(run.count for run in received.runs), 2)
        driver.delete(received, *odd)

    seen, next_offset = driver.queue.peek([MessageState.DEAD], 0, 10)

    assert (seen, next_offset) == ([], 2 * peek.RUNS_BROWSED_MAX)


def test_a_peek_returns_the_status_of_unreceived_messages() -> None:
    driver = Driver(records=5)
    driver.offsets(2)

    found = list(driver.queue.state.pieces(1, 4))

    assert [(first, end, status.receive_count) for first, end, _, status in found] == [
        (1, 2, 1),
        (2, 4, 0),
    ]
