"""Timers of runs of messages, as runs are cut."""

from tidelog.queue_layer.state.message_runs import MessageRuns
from tidelog.queue_layer.state.message_state import MessageStatus, SnapshotState

END_MS = 1_000


def in_flight(lease_id: int) -> MessageStatus:
    """Return the status of messages whose lease ends at `END_MS`."""
    return MessageStatus(SnapshotState.IN_FLIGHT, END_MS, 1, 1, 1, lease_id)


def test_the_rest_of_a_cut_run_becomes_visible() -> None:
    runs = MessageRuns()
    runs.put(0, 10, in_flight(1))

    runs.cut(0, 4)

    assert runs.advance(END_MS) == [(4, 10, in_flight(1))]


def test_a_cut_adds_no_timer_for_the_next_run() -> None:
    runs = MessageRuns()
    for offset in range(10):
        runs.put(offset, offset + 1, in_flight(offset + 1))

    for offset in range(9):
        runs.cut(offset, offset + 1)

    assert len(runs.timers) == 10
    assert runs.advance(END_MS) == [(9, 10, in_flight(10))]
