"""Frames of decisions, and the size of the entries of commands."""

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.queue_layer.driver import SECOND, START_MS, TARGET, Driver
from tidelog.logstore.config import LogConfig
from tidelog.queue_layer.commands.receive import ReceiveCommand
from tidelog.queue_layer.commands.redrive import RedriveCommand
from tidelog.queue_layer.commands.settle import REASON_LENGTH_MAX
from tidelog.queue_layer.frames import FRAME_BYTES_MAX, frames_of, is_one_frame
from tidelog.queue_layer.ordering.delivery_order import MakeOrder, RecordFields
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.queue_layer.outcome import Outcome
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.config.retry_backoff import ExponentialBackoff
from tidelog.wire.messages.queue_journal import (
    NO_TARGET,
    AnyEntry,
    DeadLettered,
    Deleted,
    JournalFrame,
    Purged,
    Seeked,
    encode,
    size,
)
from tidelog.wire.messages.queues import SettleAction

NOW_MS = 1_700_000_000_000


def test_a_small_decision_is_one_frame() -> None:
    entries: list[AnyEntry] = [Seeked(1), Purged(2)]

    assert list(frames_of(NOW_MS, entries)) == [JournalFrame(NOW_MS, entries)]


def test_no_entries_are_no_frame() -> None:
    assert list(frames_of(NOW_MS, [])) == []


def test_frames_have_all_entries_in_order_and_are_filled_up() -> None:
    entries: list[AnyEntry] = [
        DeadLettered([(place, 1)], TARGET, "\N{EURO SIGN}" * 8192) for place in range(100)
    ]

    frames = list(frames_of(NOW_MS, entries))

    assert [entry for frame in frames for entry in frame.entries] == entries
    sizes = [len(encode(frame)) for frame in frames]
    assert max(sizes) <= FRAME_BYTES_MAX
    assert min(sizes[:-1]) > FRAME_BYTES_MAX - 25_000


def test_a_frame_is_as_large_as_the_maximum_and_not_larger() -> None:
    first = DeadLettered([(0, 1)], TARGET, "x" * 8192)
    room = FRAME_BYTES_MAX - 32
    count, rest = divmod(room, size(first))
    last = DeadLettered([(0, 1)], TARGET, "x" * (8192 - size(first) + rest))
    entries: list[AnyEntry] = [first] * count
    if size(last) != rest:  # The head of a text of another length has another size.
        last = DeadLettered([(0, 1)], TARGET, last.reason + "x" * (rest - size(last)))
    assert sum(map(size, [*entries, last])) == room

    assert len(list(frames_of(NOW_MS, [*entries, last]))) == 1
    longer = DeadLettered([(0, 1)], TARGET, last.reason + "x")
    assert [len(frame.entries) for frame in frames_of(NOW_MS, [*entries, longer])] == [count, 1]
    assert is_one_frame([*entries, last])
    assert not is_one_frame([*entries, longer])


def test_entries_of_one_command_are_one_frame() -> None:
    assert Outcome(7, [Seeked(1), Seeked(2)], None).frames == [
        JournalFrame(7, [Seeked(1), Seeked(2)])
    ]


def test_without_entries_there_is_nothing_to_append() -> None:
    assert Outcome(7, [], "reply").frames == []


HOUR_MS: Final = 3600 * SECOND
START: Final = 1 << 40
"""Offsets of an old topic, which are long numbers."""


def begun(config: QueueConfig | None = None, make_order: MakeOrder = StandardOrder) -> Driver:
    """Return a queue on a topic with very many earlier records."""
    driver = Driver(config, make_order=make_order)
    driver.do(driver.queue.seek(START, now_ms=START_MS))
    driver.told.append((START, START, None, 0))
    return driver


def require_fit(driver: Driver) -> None:
    """Check that a journal with default settings accepts all that was written."""
    require_fitting(driver.journal)


def require_fitting(frames: list[bytes]) -> None:
    for data in frames:
        batch = encode_batch(Columns(1, values=[data]), first_timestamp_ms=START_MS)
        assert len(batch) <= LogConfig().max_message_bytes


def from_snapshot(driver: Driver) -> QueuePartition:
    """Return a queue loaded from a snapshot only, each part of which fits."""
    frames = [encode(frame) for frame in driver.queue.snapshot(now_ms=driver.now_ms)]
    require_fitting(frames)
    driver.journal = frames
    driver.fail_over()
    assert [encode(frame) for frame in driver.queue.snapshot(now_ms=driver.now_ms)] == frames
    return driver.queue


def delayed(count: int) -> list[RecordFields]:
    """Return as many delayed records, each with a different time."""
    return [RecordFields(START_MS + HOUR_MS + place * SECOND) for place in range(count)]


def test_a_receive_passes_any_number_of_delayed_messages() -> None:
    driver = begun()
    driver.came(70_000, fields=delayed(70_000))
    driver.came()

    assert driver.offsets() == [START + 70_000]

    require_fit(driver)
    driver.fail_over()
    assert driver.counts() == {"in_flight": 1, "delayed": 70_000}
    assert driver.queue.state.next_deadline_ms == START_MS + 30 * SECOND
    driver.wait(HOUR_MS)
    assert driver.counts() == {"visible": 2, "delayed": 69_999}


def test_a_snapshot_holds_long_reasons_of_many_messages() -> None:
    driver = begun()
    driver.came(700)
    for number in range(700):
        received = driver.take(1, timeout_ms=HOUR_MS)
        reason = f"{number} ".ljust(2000, "x")
        driver.settle(received, SettleAction.RELEASE, delay_ms=HOUR_MS, reason=reason)
    before = driver.queue.peek([], START, 1000)

    assert from_snapshot(driver).peek([], START, 1000) == before


def test_a_snapshot_holds_all_receive_attempts() -> None:
    driver = begun(QueueConfig(is_fifo=True), FifoOrder)
    driver.came(22_000, fields=[RecordFields(group=b"%d" % place) for place in range(22_000)])
    for number in range(22_000):
        attempt_id = number.to_bytes(16, "big")
        command = ReceiveCommand(max_messages=1, attempt_id=attempt_id)
        plan = driver.queue.plan(command, now_ms=START_MS)
        taken = [(run.first_offset, run.count) for run in plan]
        driver.do(driver.queue.receive(plan, taken, now_ms=START_MS))

    queue = from_snapshot(driver)

    for number in (0, 11_000, 21_999):
        command = ReceiveCommand(max_messages=1, attempt_id=number.to_bytes(16, "big"))
        again = queue.plan(command, now_ms=START_MS)
        assert [(run.first_offset, run.count) for run in again] == [(START + number, 1)]


def test_a_snapshot_holds_any_number_of_dead_letters_without_a_target() -> None:
    driver = begun()
    driver.came(60_000)
    for first in range(START, START + 60_000, 1000):
        died = [DeadLettered([(first + place, 1)], NO_TARGET) for place in range(1000)]
        driver.append(JournalFrame(START_MS, list(died)))

    queue = from_snapshot(driver)

    assert queue.state.counts() == (0, 0, 0, 60_000)


def test_a_release_with_many_delays_fits_into_frames() -> None:
    backoff = ExponentialBackoff(base_ms=HOUR_MS, jitter=1)
    driver = begun(QueueConfig(retry_backoff=backoff))
    driver.came(1000)
    received = driver.take(1000)

    driver.settle(received, SettleAction.RELEASE, reason="\N{EURO SIGN}" * REASON_LENGTH_MAX)

    require_fit(driver)
    assert driver.counts() == {"delayed": 1000}
    from_snapshot(driver)
    assert driver.counts() == {"delayed": 1000}


def test_any_number_of_messages_expires() -> None:
    driver = begun()
    driver.came(120_000)
    for first in range(START, START + 120_000, 2000):
        done: list[tuple[int, int]] = [(first + place, 1) for place in range(0, 2000, 2)]
        driver.append(JournalFrame(START_MS, [Deleted(done)]))

    driver.do(driver.queue.expire(START + 120_000, now_ms=START_MS))

    require_fit(driver)
    assert driver.counts() == {}


def test_any_number_of_messages_is_cancelled() -> None:
    driver = begun()
    driver.came(80_000, deliver_at_ms=START_MS + HOUR_MS)
    runs = [(offset, 1) for offset in range(START, START + 80_000, 2)]

    assert driver.cancel(runs) == []

    require_fit(driver)
    assert driver.counts() == {"delayed": 40_000}


steps = st.sampled_from(["delay", "large", "receive", "release", "reject", "expire", "redrive"])


def take_step(driver: Driver, step: str, reason: str) -> None:
    """Do one step with a very large result."""
    queue, now_ms = driver.queue, driver.now_ms
    match step:
        case "delay":
            driver.came(14_000, fields=delayed(14_000))
            driver.came(1000)
        case "large":
            driver.came(2000, fields=[RecordFields(is_chunk=n % 2 == 0) for n in range(2000)])
        case "receive":
            driver.take(1000, holder="\N{EURO SIGN}" * 128)
        case "release":
            driver.settle(driver.take(1000), SettleAction.RELEASE, reason=reason)
        case "reject":
            driver.settle(driver.take(1000), SettleAction.REJECT, reason=reason)
        case "expire":
            driver.do(queue.expire(queue.state.records_from, now_ms=now_ms))
        case _:
            driver.do(queue.start_redrive(RedriveCommand(), now_ms=now_ms))
            runs, end = queue.redrive_candidates(1000)
            driver.do(queue.redrive_progressed([(TARGET, runs)], end, now_ms=now_ms))


@settings(max_examples=8)
@given(
    chosen=st.lists(steps, min_size=5, max_size=12),
    reason=st.text(min_size=1, max_size=3),
    has_dead_letters=st.booleans(),
)
def test_no_frame_exceeds_the_maximum_size(
    chosen: list[str], reason: str, has_dead_letters: bool
) -> None:
    config = QueueConfig(
        retry_backoff=ExponentialBackoff(base_ms=HOUR_MS, jitter=1),
        dead_letter_target=TARGET if has_dead_letters else None,
        max_receive_count=2,
        retention_ms=HOUR_MS,
    )
    driver = begun(config)
    driver.came(1000)
    for step in chosen:
        take_step(driver, step, (reason * REASON_LENGTH_MAX)[:REASON_LENGTH_MAX])
        driver.wait(SECOND)

    frames = map(encode, driver.queue.snapshot(now_ms=driver.now_ms))
    assert max(map(len, (*driver.journal, *frames))) <= FRAME_BYTES_MAX
