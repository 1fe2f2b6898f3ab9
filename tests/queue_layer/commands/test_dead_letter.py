"""Dead letters: messages that had all their deliveries."""

from tests.queue_layer.driver import SECOND, TARGET, Driver, offsets_of
from tidelog.queue_layer.commands.dead_letter import EXHAUSTED_MAX, dead_lettered
from tidelog.queue_layer.commands.receive import RUNS_MAX
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queue_journal import BackgroundWork, DeadLettered
from tidelog.wire.messages.queues import SettleAction

ONCE = QueueConfig(max_receive_count=1, dead_letter_target=TARGET)


def test_dead_letters_are_cut_into_batches() -> None:
    entries = list(dead_lettered([(0, 150), (200, 70)], TARGET, "why"))

    assert entries == [
        DeadLettered([(0, 100)], TARGET, "why"),
        DeadLettered([(100, 50), (200, 50)], TARGET, "why"),
        DeadLettered([(250, 20)], TARGET, "why"),
    ]


def test_many_messages_become_dead_letters_in_parts() -> None:
    driver = Driver(ONCE, records=3 * EXHAUSTED_MAX)
    while driver.offsets(1_000):
        pass
    driver.queue.state.advance(driver.now_ms + 30 * SECOND)
    parts: list[int] = []

    while driver.queue.state.exhausted:
        outcome = driver.queue.dead_letter_exhausted(now_ms=driver.now_ms + 30 * SECOND)
        for frame in outcome.frames:
            driver.append(frame)
        entries = [each for each in outcome.entries if isinstance(each, DeadLettered)]
        parts.append(sum(len(offsets_of(each.runs)) for each in entries))

    assert parts == [EXHAUSTED_MAX] * 3
    assert driver.queue.state.counts() == (0, 0, 0, 3 * EXHAUSTED_MAX)


def test_scattered_messages_become_dead_letters_in_parts() -> None:
    driver = Driver(ONCE, records=2 * RUNS_MAX)
    for offset in range(2 * RUNS_MAX):
        driver.take(1, timeout_ms=offset * SECOND + 1)
    driver.queue.state.advance(driver.now_ms + 3_600 * SECOND)

    outcome = driver.queue.dead_letter_exhausted(now_ms=driver.now_ms + 3_600 * SECOND)
    for frame in outcome.frames:
        driver.append(frame)

    assert driver.queue.state.counts() == (RUNS_MAX, 0, 0, RUNS_MAX)


def test_a_message_that_changed_meanwhile_is_no_dead_letter() -> None:
    driver = Driver(ONCE, records=3)
    received = driver.take()
    driver.queue.state.advance(driver.now_ms + 30 * SECOND)
    driver.now_ms += 30 * SECOND
    driver.queue.state.exhausted, noted = [], driver.queue.state.exhausted
    driver.delete(received, 0)
    driver.settle(received, SettleAction.EXTEND, 1, delay_ms=SECOND)
    driver.queue.state.exhausted = noted * 2

    driver.dead_letter_exhausted()

    assert driver.counts() == {"in_flight": 1, "dead": 1}


def test_the_journal_says_that_last_deliveries_have_to_end() -> None:
    """So the next leader loads the partition, although no request comes."""
    driver = Driver(ONCE, records=2)

    received = driver.take(1)

    works = [driver.queue.state.background_work]
    driver.delete(received)
    works.append(driver.queue.state.background_work)

    assert works == [BackgroundWork.LAST_DELIVERIES, BackgroundWork.NOTHING]


def test_the_next_leader_finds_a_last_delivery_that_has_ended_meanwhile() -> None:
    driver = Driver(ONCE, records=1)
    driver.take()
    driver.now_ms += 30 * SECOND

    driver.fail_over()

    assert driver.counts() == {"dead": 1}
