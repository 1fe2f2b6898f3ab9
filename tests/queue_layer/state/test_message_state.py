"""The states of a message, its status, and runs of equal status."""

from itertools import product

import pytest

from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.queue_layer.state.message_runs import MessageRuns
from tidelog.queue_layer.state.message_state import (
    SKIPPED,
    TRANSITIONS,
    MessageStatus,
    SnapshotState,
)
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.messages.queue_journal import Delayed, JournalFrame, Received
from tidelog.wire.messages.queues import MessageState


def test_unset_fields_of_a_status_are_kept() -> None:
    status = MessageStatus(
        SnapshotState.IN_FLIGHT, 30, 2, 10, 20, 7, "worker-1", "no route to host"
    )

    assert status.changed(SnapshotState.AVAILABLE, 40) == MessageStatus(
        SnapshotState.AVAILABLE, 40, 2, 10, 20, 7, "worker-1", "no route to host"
    )
    assert status.changed(SnapshotState.DEAD, 0, reason="").reason == ""


def test_delayed_messages_and_dead_letters_are_not_delivered() -> None:
    stored = [state for state in MessageState if state is not MessageState.BLOCKED]

    assert set(product(stored, stored)) - TRANSITIONS == {
        (MessageState.DELAYED, MessageState.IN_FLIGHT),
        (MessageState.DEAD, MessageState.IN_FLIGHT),
        (MessageState.DEAD, MessageState.DEAD),
    }


def test_an_entry_that_makes_no_transition_is_a_defect() -> None:
    state = QueueState(StandardOrder)
    state.apply(JournalFrame(5, [Delayed([(0, 1, 100)])]))

    with pytest.raises(AssertionError, match="DELAYED -> IN_FLIGHT is no transition"):
        state.apply(JournalFrame(6, [Received(1, [(0, 1)], 50)]))


IN_FLIGHT = MessageStatus(SnapshotState.IN_FLIGHT, 100, 1, 5, 5, 1)
DELAYED = MessageStatus(SnapshotState.AVAILABLE, 200)
DEAD = MessageStatus(SnapshotState.DEAD)


def all_kinds() -> MessageRuns:
    runs = MessageRuns()
    runs.put(0, 10, IN_FLIGHT)
    runs.put(10, 15, DELAYED)
    runs.put(15, 16, DEAD)
    runs.put(20, 27, SKIPPED)
    return runs


@pytest.mark.statement("b72")
def test_messages_are_counted_by_state() -> None:
    runs = all_kinds()

    assert runs.counts == [7, 10, 5, 1]
    assert (len(runs), runs.first) == (4, 0)


@pytest.mark.statement("b72")
def test_time_makes_messages_visible_once() -> None:
    runs = all_kinds()

    assert runs.next_deadline_ms() == 100
    assert runs.advance(100) == [(0, 10, IN_FLIGHT)]
    assert runs.counts == [17, 0, 5, 1]
    assert runs.advance(100) == []
    assert runs.advance(300) == [(10, 15, DELAYED)]
    assert runs.counts == [22, 0, 0, 1]
    assert runs.next_deadline_ms() is None


@pytest.mark.statement("b84")
def test_time_never_runs_backwards() -> None:
    runs = all_kinds()
    runs.advance(150)

    assert runs.advance(50) == []
    assert runs.time_ms == 150
    assert runs.counts == [17, 0, 5, 1]


def test_the_rest_of_a_cut_run_becomes_visible() -> None:
    runs = all_kinds()

    assert runs.cut(3, 5) == [(3, 5, IN_FLIGHT)]

    assert runs.counts == [7, 8, 5, 1]
    assert runs.advance(100) == [(0, 3, IN_FLIGHT), (5, 10, IN_FLIGHT)]


def test_pieces_put_back_become_visible_once() -> None:
    runs = all_kinds()
    for first, end, status in runs.cut(3, 5):
        runs.put(first, end, status)

    assert runs.advance(100) == [(0, 10, IN_FLIGHT)]
    assert runs.counts == [17, 0, 5, 1]


def test_clear_removes_all_runs() -> None:
    runs = all_kinds()

    runs.clear()

    assert runs.counts == [0, 0, 0, 0]
    assert runs.next_deadline_ms() is None
    assert list(runs) == []


def test_fill_equals_single_puts() -> None:
    one_by_one, filled = all_kinds(), MessageRuns()
    filled.put(3, 4, DEAD)

    filled.fill(list(one_by_one))

    assert list(filled) == list(one_by_one)
    assert (filled.counts, filled.next_deadline_ms()) == (one_by_one.counts, 100)
    assert filled.advance(100) == one_by_one.advance(100)
    assert filled.counts == one_by_one.counts
