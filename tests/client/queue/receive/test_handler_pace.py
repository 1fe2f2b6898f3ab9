"""Pace of a worker's handlers, and the messages in hand that follow from it."""

import pytest

from tidelog.client.queue.receive.handler_pace import HandlerPace


def ahead_after(concurrency: int, *seconds: float, timeout_s: float = 30) -> int:
    pace = HandlerPace(concurrency)
    pace.limit(timeout_s)
    for each in seconds:
        pace.note(each)
    return pace.ahead


@pytest.mark.parametrize(
    ("concurrency", "seconds", "ahead"),
    [
        (1, 0.0, 8),
        (1, 0.00025, 4),
        (1, 0.01, 1),
        (1, 0.1, 1),
        (1, 0.11, 0),
        (1, 5, 0),
        (10, 0.0, 10),
        (10, 0.1, 10),
        (10, 0.2, 5),
        (10, 5, 0),
        (100, 0.5, 20),
    ],
)
def test_slow_handlers_have_fewer_messages_in_hand(
    concurrency: int, seconds: float, ahead: int
) -> None:
    assert ahead_after(concurrency, seconds) == ahead


def test_nothing_is_in_hand_before_the_first_handler_has_ended() -> None:
    assert ahead_after(10) == 0


def test_a_short_visibility_timeout_limits_the_messages_in_hand() -> None:
    assert ahead_after(10, 0.1, timeout_s=1) == 5
    assert ahead_after(1, 0.1, timeout_s=1) == 0


def test_a_single_slow_handler_counts_for_a_part() -> None:
    assert ahead_after(1, *[0.01] * 20, 0.2) == 1
    assert ahead_after(1, *[0.01] * 20, 2.0) == 0
    assert ahead_after(1, *[0.01] * 20, 2.0, *[0.01] * 20) == 1


def test_after_a_late_message_nothing_is_in_hand_until_handlers_are_fast() -> None:
    pace = HandlerPace(4)
    pace.limit(5)
    pace.note(0.001)
    assert pace.ahead == 4
    assert pace.patience_s == 0.5
    pace.slow_down()
    assert pace.ahead == 0
    for _ in range(30):
        pace.note(0.001)
    assert pace.ahead == 4


def test_messages_whose_visibility_timeout_is_over_do_no_harm() -> None:
    pace = HandlerPace(1)
    pace.limit(-2)
    pace.note(0)
    pace.slow_down()
    assert pace.ahead == 0
    assert pace.patience_s > 0


def is_instant_after(*seconds: float) -> bool:
    pace = HandlerPace(1)
    for each in seconds:
        pace.note(each)
    return pace.is_instant


def test_handlers_that_do_not_wait_are_instant() -> None:
    assert not is_instant_after()
    assert is_instant_after(0.00001)
    assert not is_instant_after(0.00001, 0.01)
