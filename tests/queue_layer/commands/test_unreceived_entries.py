"""Journal entries of passed messages: every prefix of their frames gives a valid state."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_layer.driver import SECOND, START_MS, TARGET, Driver
from tidelog.queue_layer import frames
from tidelog.queue_layer.commands import unreceived_entries
from tidelog.queue_layer.commands.receive import ReceiveCommand
from tidelog.queue_layer.commands.redrive import RedriveCommand
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.outcome import Outcome
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queue_journal import AnyEntry, Delayed, Deleted, Received, encode
from tidelog.wire.messages.queues import MessageState, Run

HOUR_MS = 3600 * SECOND
PLAIN = RecordFields()
LATER = RecordFields(deliver_at_ms=START_MS + HOUR_MS)
JUST_NOW = RecordFields(deliver_at_ms=START_MS - SECOND)
PART = RecordFields(is_chunk=True)
CONFIG = QueueConfig(retention_ms=HOUR_MS)


class Case(NamedTuple):
    """Records, and those that a decision is about."""

    fields: list[RecordFields]
    chosen: set[int]


Decide = Callable[[Driver, Case], Outcome[object]]

cases = st.lists(
    st.tuples(st.sampled_from([PLAIN, LATER, JUST_NOW, PART]), st.booleans()),
    min_size=10,
    max_size=30,
).map(
    lambda drawn: Case(
        [fields for fields, _ in drawn], {n for n, (_, is_chosen) in enumerate(drawn) if is_chosen}
    )
)


def told(case: Case) -> Driver:
    driver = Driver(CONFIG)
    driver.came(len(case.fields), fields=case.fields)
    return driver


def of_chosen(case: Case, *kinds: RecordFields) -> list[Run]:
    return [(n, 1) for n in sorted(case.chosen) if case.fields[n] in kinds]


def received(driver: Driver, case: Case) -> Outcome[object]:
    plan = driver.queue.plan(ReceiveCommand(max_messages=1000), now_ms=START_MS)
    taken = of_chosen(case, PLAIN, JUST_NOW)
    outcome = driver.queue.receive(plan, taken, now_ms=START_MS)
    return Outcome(outcome.now_ms, outcome.entries, None)


def cancelled(driver: Driver, case: Case) -> Outcome[object]:
    outcome = driver.queue.cancel(of_chosen(case, LATER), now_ms=START_MS)
    return Outcome(outcome.now_ms, outcome.entries, None)


def expired(driver: Driver, case: Case) -> Outcome[object]:
    outcome = driver.queue.expire(len(case.fields), now_ms=START_MS)
    return Outcome(outcome.now_ms, outcome.entries, None)


def redriven(driver: Driver, case: Case) -> Outcome[object]:
    driver.do(driver.queue.start_redrive(RedriveCommand(), now_ms=START_MS))
    runs = of_chosen(case, PLAIN, JUST_NOW)
    middle = len(runs) // 2
    outcome = driver.queue.redrive_progressed(
        [((b"other", 1), runs[middle:]), (TARGET, runs[:middle])], len(case.fields), now_ms=START_MS
    )
    return Outcome(outcome.now_ms, outcome.entries, None)


def states(driver: Driver) -> dict[int, MessageState]:
    seen, rest = driver.queue.peek([], 0, 10_000)
    assert rest is None
    return {
        run.first_offset + place: MessageState(run.state)
        for run in seen
        for place in range(run.count)
    }


@given(case=cases, decide=st.sampled_from([received, cancelled, expired, redriven]))
def test_each_prefix_of_the_frames_leaves_other_messages_unchanged(
    case: Case, decide: Decide
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unreceived_entries, "RUNS_PER_ENTRY", 2)
        patch.setattr(frames, "FRAME_BYTES_MAX", 80)
        driver = told(case)
        parts = decide(driver, case).frames
        assert all(len(encode(frame)) <= 80 or len(frame.entries) == 1 for frame in parts)

        for known in range(len(parts) + 1):
            successor = told(case)
            successor.journal = [*driver.journal, *map(encode, parts[:known])]
            successor.fail_over()
            found = states(successor)

            for offset, fields in enumerate(case.fields):
                if fields is PART:
                    assert offset not in found
                elif fields is LATER and decide is not cancelled:
                    assert found[offset] is MessageState.DELAYED
                elif fields is LATER:
                    expected = None if offset in case.chosen else MessageState.DELAYED
                    assert found.get(offset) in {expected, MessageState.DELAYED}
                elif known == 0 or (decide is not expired and offset not in case.chosen):
                    assert found[offset] is MessageState.VISIBLE
            keeps_times(successor, case)


def test_delivery_times_are_kept_across_the_frames_of_one_decision() -> None:
    """The first frame redrives a message behind another one that the second frame redrives."""
    case = Case([LATER, JUST_NOW, PLAIN], {1, 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "FRAME_BYTES_MAX", 80)
        driver = told(case)
        parts = redriven(driver, case).frames
        assert len(parts) > 1

        for known in range(len(parts) + 1):
            successor = told(case)
            successor.journal = [*driver.journal, *map(encode, parts[:known])]
            successor.fail_over()
            keeps_times(successor, case)


def keeps_times(driver: Driver, case: Case) -> None:
    """Check that unreceived messages with their own delivery time keep it."""
    before = states(driver)

    driver.do(driver.queue.expire(len(case.fields), now_ms=START_MS))

    after = states(driver)
    for offset, fields in enumerate(case.fields):
        if fields is JUST_NOW and before.get(offset) is MessageState.VISIBLE:
            assert after[offset] is MessageState.VISIBLE


def test_a_decision_of_one_frame_keeps_no_time_of_the_messages_that_it_changes() -> None:
    driver = told(Case([LATER, JUST_NOW, JUST_NOW], set()))
    plan = driver.queue.plan(ReceiveCommand(max_messages=1), now_ms=START_MS)

    outcome = driver.queue.receive(plan, [(2, 1)], now_ms=START_MS)

    assert list(outcome.entries[:-1]) == [
        Delayed([(0, 1, START_MS + HOUR_MS), (1, 1, START_MS - SECOND)])
    ]


def test_entries_of_passed_messages_are_in_offset_order() -> None:
    driver = told(Case([PART, LATER, PART, PART, PLAIN, LATER, PLAIN], set()))
    plan = driver.queue.plan(ReceiveCommand(max_messages=1), now_ms=START_MS)

    outcome = driver.queue.receive(plan, [(6, 1)], now_ms=START_MS)

    passed: list[AnyEntry] = [
        Deleted([(0, 1)]),
        Delayed([(1, 1, START_MS + HOUR_MS)]),
        Deleted([(2, 2)]),
        Delayed([(5, 1, START_MS + HOUR_MS)]),
    ]
    assert list(outcome.entries[:-1]) == passed
    assert isinstance(outcome.entries[-1], Received)
