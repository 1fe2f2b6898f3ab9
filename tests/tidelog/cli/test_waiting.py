"""The lines about what a command waits for."""

from tidelog.cli.waiting import Waiting

BROKER = "127.0.0.1:8433"


def lines_of(waiting: Waiting, *times: float) -> list[str | None]:
    return [waiting.due_line(now) for now in times]


def connected(now: float = 0.0) -> Waiting:
    waiting = Waiting(BROKER, now=now, connect_timeout=10)
    waiting.connected()
    return waiting


def test_a_broker_that_does_not_answer_is_named_after_two_seconds_and_once() -> None:
    waiting = Waiting(BROKER, now=100, connect_timeout=10)

    line = "waiting, up to 8 s more: no answer from 127.0.0.1:8433 yet"
    assert lines_of(waiting, 100, 101.9, 102, 103, 109) == [None, None, line, None, None]


def test_a_connected_client_waits_for_nothing_by_itself() -> None:
    assert lines_of(connected(), 2, 60, 3600) == [None] * 3


def test_a_repeated_request_has_a_line_with_its_last_error_and_the_time_left() -> None:
    waiting = connected()
    waiting.began(1, "orders/3 has no leader", deadline=30, now=0.1)
    waiting.began(1, "this broker is not ready", deadline=30, now=1.5)

    assert waiting.due_line(2.0) is None
    assert waiting.due_line(2.1) == "waiting, up to 28 s more: this broker is not ready"


def test_a_request_that_ends_within_two_seconds_has_no_line() -> None:
    waiting = connected()
    waiting.began(1, "orders/3 has no leader", deadline=30, now=0.1)
    waiting.ended(1)

    assert lines_of(waiting, 2.1, 5) == [None, None]


def test_the_oldest_of_several_requests_is_shown() -> None:
    waiting = connected()
    waiting.began(1, "first", deadline=30, now=0)
    waiting.began(2, "second", deadline=31, now=1)

    assert waiting.due_line(3) == "waiting, up to 27 s more: first"


def test_another_reason_has_a_line_ten_seconds_later() -> None:
    waiting = connected()
    waiting.began(1, "first", deadline=60, now=0)
    assert waiting.due_line(2) == "waiting, up to 58 s more: first"
    waiting.began(1, "second", deadline=60, now=4)

    assert lines_of(waiting, 5, 11.9) == [None, None]
    assert waiting.due_line(12) == "waiting, up to 48 s more: second"


def test_a_blocked_consumer_has_a_line_as_long_as_it_reports_that() -> None:
    waiting = connected()
    for now in (10, 11, 12):
        waiting.blocked("orders/3 has no leader", now=now)

    assert waiting.due_line(11.9) is None
    assert waiting.due_line(12) == "waiting: orders/3 has no leader"


def test_single_failures_far_apart_have_no_line() -> None:
    waiting = connected()
    for now in (10, 15, 20):
        waiting.blocked("orders/3 has no leader", now=now)
        assert lines_of(waiting, now, now + 2.6, now + 4) == [None] * 3
