"""A redrive says how far it is."""

from dataclasses import replace

from tidelog.queue_layer.state.redrive_state import Redrive
from tidelog.wire.messages.redrives import RedriveStatus

RUNNING = Redrive(end=100, next_offset=40, to_move=50, started_ms=1, taken=20, skipped=5)


def test_what_it_has_not_looked_at_is_left() -> None:
    assert RUNNING.left == 25
    assert replace(RUNNING, status=RedriveStatus.CANCELLED).left == 25


def test_nothing_is_left_when_it_has_looked_at_all_whoever_received_some_meanwhile() -> None:
    assert replace(RUNNING, status=RedriveStatus.COMPLETED).left == 0


def test_there_may_be_more_than_there_were() -> None:
    """Messages that were leased when it began, and are visible by now."""
    assert replace(RUNNING, taken=60).left == 0
