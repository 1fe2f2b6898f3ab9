"""Receive: visibility, counts, limits and last deliveries."""

from dataclasses import replace

import pytest

from tests.queue_layer.driver import SECOND, START_MS, TARGET, Driver
from tests.queue_layer.fifo_driver import fifo
from tidelog.queue_layer.commands.receive import RUNS_MAX, ReceiveCommand, joined
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.config.retry_backoff import parse_backoff
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.queue_journal import Delayed, Received
from tidelog.wire.messages.queues import ReceivedRun, SettleAction

DYING = QueueConfig(max_receive_count=2, dead_letter_target=TARGET)


@pytest.mark.statement("b1", "b15")
def test_a_received_message_is_invisible_until_its_deadline() -> None:
    """Statement 1."""
    driver = Driver(records=1)
    first = driver.take()
    driver.wait(30 * SECOND - 1)
    assert driver.offsets() == []

    driver.wait(1)
    second = driver.take()

    assert [run.first_offset for run in second.runs] == [0]
    assert first.receipt != second.receipt


@pytest.mark.statement("b2", "b3")
def test_a_receive_with_visibility_timeout_0_counts_but_leaves_the_message_visible() -> None:
    """Statements 2 and 3."""
    driver = Driver(records=1)

    received = [driver.take(timeout_ms=0) for _ in range(3)]

    assert [one.runs[0].receive_count for one in received] == [1, 2, 3]
    assert len({one.receipt for one in received}) == 3
    assert driver.counts() == {"visible": 1}


@pytest.mark.statement("b4")
def test_the_visibility_timeout_of_a_receive_does_not_affect_the_next() -> None:
    """Statement 4."""
    driver = Driver(records=1)
    received = driver.take(timeout_ms=5 * SECOND)
    driver.settle(received, SettleAction.EXTEND, delay_ms=7 * SECOND)
    driver.wait(7 * SECOND)

    assert driver.take().deadline_ms == driver.now_ms + 30 * SECOND


def test_a_receive_takes_any_number_of_adjacent_messages_and_few_scattered_ones() -> None:
    assert Driver(records=1_000).offsets(1_000) == list(range(1_000))

    in_turn = fifo("ab" * RUNS_MAX)
    assert in_turn.offsets(1_000) == list(range(0, 2 * RUNS_MAX, 2))
    assert fifo("ab" * (RUNS_MAX + 1)).offsets(1_000) == list(range(0, 2 * RUNS_MAX, 2))


@pytest.mark.statement("b50")
def test_the_receive_count_grows_by_one_with_each_delivery() -> None:
    """Statement 50."""
    driver = Driver(records=1)

    for count in range(1, 5):
        run = driver.take().runs[0]
        assert run == ReceivedRun(0, 1, count, START_MS)
        driver.wait(30 * SECOND)


@pytest.mark.statement("b51", "b52")
def test_a_message_is_a_dead_letter_after_max_receive_count_deliveries() -> None:
    """Statement 51: when the lease of its last delivery ends, without another receive."""
    driver = Driver(DYING, records=1)
    assert driver.offsets() == [0]
    driver.wait(30 * SECOND)
    assert driver.offsets() == [0]

    driver.wait(30 * SECOND - 1)
    assert driver.counts() == {"in_flight": 1}
    driver.wait(1)

    assert driver.counts() == {"dead": 1}
    driver.wait(3600 * SECOND)
    assert driver.offsets() == []


@pytest.mark.statement("b57")
@pytest.mark.parametrize("delay_ms", [None, 0, 3600 * SECOND])
def test_a_release_of_the_last_delivery_makes_a_dead_letter_at_once(delay_ms: int | None) -> None:
    """Statement 57: no delay of a retry, which does not come."""
    config = replace(DYING, retry_backoff=parse_backoff("retry_backoff", "1min"))
    driver = Driver(config, records=3)
    driver.settle(driver.take(), SettleAction.RELEASE, delay_ms=0)
    received = driver.take(1)

    driver.settle(received, SettleAction.RELEASE, delay_ms=delay_ms, reason="no luck")

    assert driver.counts() == {"visible": 2, "dead": 1}
    repeated = driver.settle(received, SettleAction.RELEASE, delay_ms=delay_ms)
    assert repeated.refused == []
    batch = driver.queue.state.moves.next_batch(TARGET)
    assert batch is not None
    (letter,) = driver.queue.state.dead_letters(batch)
    assert (letter.receive_count, letter.reason) == (2, "no luck")


@pytest.mark.statement("b57")
def test_a_visibility_timeout_of_0_after_the_last_delivery_makes_a_dead_letter() -> None:
    driver = Driver(DYING, records=1)
    driver.settle(driver.take(), SettleAction.RELEASE, delay_ms=0)

    driver.settle(driver.take(), SettleAction.EXTEND, delay_ms=0)

    assert driver.counts() == {"dead": 1}


@pytest.mark.statement("b56")
def test_a_lower_max_receive_count_applies_to_existing_messages() -> None:
    """Statement 56."""
    driver = Driver(QueueConfig(max_receive_count=5, dead_letter_target=TARGET), records=1)
    for _ in range(2):
        driver.offsets()
        driver.wait(30 * SECOND)

    driver.config = DYING
    driver.fail_over()

    assert driver.counts() == {"dead": 1}


@pytest.mark.statement("b88")
def test_without_a_dead_letter_queue_deliveries_are_unlimited() -> None:
    """Statement 88."""
    driver = Driver(QueueConfig(max_receive_count=2), records=1)

    for count in range(1, 10):
        assert driver.take().runs[0].receive_count == count
        driver.wait(30 * SECOND)


@pytest.mark.statement("b87")
def test_the_last_delivery_of_a_message_is_a_receive_of_its_own() -> None:
    """Statement 87: a poison message does not exhaust other messages."""
    driver = Driver(DYING, records=4)
    assert driver.offsets() == [0, 1, 2, 3]
    driver.wait(30 * SECOND)

    assert [driver.offsets() for _ in range(4)] == [[0], [1], [2], [3]]


@pytest.mark.statement("b87")
def test_a_new_message_is_not_received_with_one_on_its_last_delivery() -> None:
    """Statement 87."""
    driver = Driver(DYING, records=1)
    driver.offsets()
    driver.wait(30 * SECOND)
    driver.came(5)

    receives = [driver.offsets() for _ in range(2)]

    assert sorted(receives) == [[0], [1, 2, 3, 4, 5]]


def test_a_queue_of_single_deliveries_still_hands_out_batches() -> None:
    driver = Driver(QueueConfig(max_receive_count=1, dead_letter_target=TARGET), records=5)

    assert driver.offsets() == [0, 1, 2, 3, 4]


@pytest.mark.statement("b19", "b83")
def test_in_flight_messages_are_limited_in_number_and_not_in_span() -> None:
    """Statements 19 and 83."""
    driver = Driver(QueueConfig(max_in_flight=3), records=1000)
    slow = driver.take(1, timeout_ms=3600 * SECOND)
    for _ in range(400):
        driver.delete(driver.take(2))

    driver.take(10)

    plan = driver.queue.plan(ReceiveCommand(max_messages=1), now_ms=driver.now_ms)
    assert list(plan) == []
    assert driver.counts()["in_flight"] == 3
    driver.delete(slow)
    assert len(driver.offsets(1)) == 1


@pytest.mark.statement("q9")
def test_a_delayed_message_is_not_received_before_its_time() -> None:
    """I9."""
    driver = Driver()
    later = RecordFields(deliver_at_ms=START_MS + 10 * SECOND)
    driver.came(4, fields=[RecordFields(), later, later, RecordFields()])
    assert driver.counts() == {"visible": 2, "delayed": 2}

    assert driver.offsets() == [0, 3]
    driver.wait(10 * SECOND - 1)
    assert driver.offsets() == []
    driver.wait(1)

    assert driver.offsets() == [1, 2]


@pytest.mark.statement("b74")
def test_a_delay_survives_a_failover() -> None:
    driver = Driver()
    later = RecordFields(deliver_at_ms=START_MS + 10 * SECOND)
    driver.came(3, fields=[RecordFields(), later, RecordFields()])
    driver.offsets()

    driver.fail_over()

    assert driver.counts() == {"in_flight": 2, "delayed": 1}
    driver.wait(10 * SECOND)
    assert driver.offsets() == [1]


def test_a_stretch_of_records_has_one_delay() -> None:
    driver = Driver()
    driver.came(5, deliver_at_ms=START_MS + SECOND)

    assert driver.counts() == {"delayed": 5}
    driver.wait(SECOND)
    assert driver.offsets() == [0, 1, 2, 3, 4]


def test_a_receive_may_take_a_part_of_its_plan() -> None:
    driver = Driver(records=100)
    plan = driver.queue.plan(ReceiveCommand(max_messages=50), now_ms=driver.now_ms)
    (offered,) = plan

    reply = driver.do(driver.queue.receive(plan, [(0, 7)], now_ms=driver.now_ms))

    assert offered == ReceivedRun(0, 50, 1, START_MS)
    assert reply.runs == [ReceivedRun(0, 7, 1, START_MS)]
    assert driver.counts() == {"visible": 93, "in_flight": 7}


@pytest.mark.statement("b80")
def test_a_stale_plan_delivers_only_messages_that_are_still_visible() -> None:
    driver = Driver(records=10)
    plan = driver.queue.plan(ReceiveCommand(max_messages=10), now_ms=driver.now_ms)
    taken = [(run.first_offset, run.count) for run in plan]
    driver.offsets(4)
    assert not plan.is_current

    reply = driver.do(driver.queue.receive(plan, taken, now_ms=driver.now_ms))

    assert [(run.first_offset, run.count) for run in reply.runs] == [(4, 6)]


def test_a_stale_plan_respects_max_receive_count() -> None:
    """Statement 51, while records are read slowly."""
    driver = Driver(DYING, records=1)
    driver.offsets(timeout_ms=0)
    plan = driver.queue.plan(ReceiveCommand(max_messages=1), now_ms=driver.now_ms)
    taken = [(run.first_offset, run.count) for run in plan]
    assert driver.offsets(timeout_ms=0) == [0]

    outcome = driver.queue.receive(plan, taken, now_ms=driver.now_ms)

    assert taken == [(0, 1)]
    assert outcome.reply.runs == []


def test_a_stale_plan_of_a_fifo_queue_delivers_nothing() -> None:
    driver = Driver(QueueConfig(is_fifo=True), records=10)
    plan = driver.queue.plan(ReceiveCommand(max_messages=10), now_ms=driver.now_ms)
    taken = [(run.first_offset, run.count) for run in plan]
    driver.offsets(4)

    outcome = driver.queue.receive(plan, taken, now_ms=driver.now_ms)

    assert outcome.entries == []
    assert outcome.reply.runs == []


def test_a_receive_writes_one_entry_however_many_messages_it_has() -> None:
    driver = Driver(records=1000)
    plan = driver.queue.plan(ReceiveCommand(max_messages=1000), now_ms=driver.now_ms)

    outcome = driver.queue.receive(plan, [(0, 1000)], now_ms=driver.now_ms)

    assert outcome.entries == [Received(1, [(0, 1000)], START_MS + 30 * SECOND, "", None)]


def test_the_cursor_passes_delayed_messages_with_their_times() -> None:
    driver = Driver()
    later = RecordFields(deliver_at_ms=START_MS + SECOND)
    driver.came(3, fields=[later, later, RecordFields()])
    plan = driver.queue.plan(ReceiveCommand(max_messages=9), now_ms=driver.now_ms)

    outcome = driver.queue.receive(plan, [(2, 1)], now_ms=driver.now_ms)

    assert outcome.entries[0] == Delayed([(0, 2, START_MS + SECOND)])


@pytest.mark.statement("b16")
@pytest.mark.parametrize(
    "settings",
    [
        {"max_messages": 0},
        {"max_messages": 1001},
        {"max_messages": 1, "visibility_timeout_ms": -1},
        {"max_messages": 1, "visibility_timeout_ms": 43_200_001},
        {"max_messages": 1, "holder": "x" * 129},
        {"max_messages": 1, "attempt_id": b""},
        {"max_messages": 1, "attempt_id": b"x" * 17},
    ],
)
def test_a_receive_out_of_range_is_refused(settings: dict[str, int]) -> None:
    """Statement 16."""
    with pytest.raises(InvalidRequestError):
        ReceiveCommand(**settings)  # type: ignore[arg-type]


@pytest.mark.statement("b16")
@pytest.mark.parametrize(
    "settings",
    [
        {"max_messages": 1},
        {"max_messages": 1000},
        {"max_messages": 1, "visibility_timeout_ms": 0},
        {"max_messages": 1, "visibility_timeout_ms": 43_200_000},
        {"max_messages": 1, "holder": "x" * 128},
        {"max_messages": 1, "attempt_id": b"x"},
        {"max_messages": 1, "attempt_id": b"x" * 16},
    ],
)
def test_a_receive_at_a_limit_is_accepted(settings: dict[str, int]) -> None:
    command = ReceiveCommand(**settings)  # type: ignore[arg-type]

    assert {name: getattr(command, name) for name in settings} == settings


def test_a_receive_with_the_longest_timeout_ends_after_twelve_hours() -> None:
    driver = Driver(records=1)

    received = driver.take(timeout_ms=43_200_000)

    assert received.deadline_ms == START_MS + 43_200_000


def test_adjacent_runs_are_joined() -> None:
    assert joined([(5, 2), (0, 3), (3, 2), (9, 1)]) == [(0, 7), (9, 1)]


@pytest.mark.statement("b76")
@pytest.mark.parametrize("fails_over", [False, True])
def test_a_receive_with_a_lost_reply_costs_one_count_and_one_visibility_timeout(
    fails_over: bool,
) -> None:
    """Statement 76."""
    driver = Driver(records=2)
    driver.take(timeout_ms=5 * SECOND)

    if fails_over:
        driver.fail_over()
    driver.wait(5 * SECOND - 1)
    assert driver.offsets() == []
    driver.wait(1)
    (again,) = driver.take().runs

    assert (again.first_offset, again.count, again.receive_count) == (0, 2, 2)


@pytest.mark.statement("b76")
def test_a_receive_that_was_not_committed_costs_nothing() -> None:
    """Statement 76: the broker died before the commit."""
    driver = Driver(records=2)
    plan = driver.queue.plan(ReceiveCommand(max_messages=2), now_ms=driver.now_ms)
    driver.queue.receive(plan, [(0, 2)], now_ms=driver.now_ms)

    driver.fail_over()
    (first,) = driver.take().runs

    assert (first.count, first.receive_count) == (2, 1)
