"""The schedule of fetches of an identity provider's keys."""

import pytest

from tidelog.broker.security.jwt.refresh_schedule import (
    REFRESH_S,
    UNKNOWN_KEY_S,
    RefreshSchedule,
)


def fetched(at_s: float) -> RefreshSchedule:
    schedule = RefreshSchedule()
    schedule.ended(at_s, is_success=True)
    return schedule


def test_the_first_fetch_is_at_once_and_the_next_by_age() -> None:
    assert RefreshSchedule().due_at_s() <= 0
    assert fetched(100).due_at_s() == 100 + REFRESH_S


def test_unknown_keys_cause_one_fetch_in_half_a_minute() -> None:
    schedule = fetched(100)

    assert not any(schedule.want(100 + second) for second in range(int(UNKNOWN_KEY_S)))
    assert schedule.due_at_s() == 100 + UNKNOWN_KEY_S
    assert schedule.want(100 + UNKNOWN_KEY_S)
    schedule.ended(130, is_success=True)
    assert schedule.due_at_s() == 130 + REFRESH_S
    assert not schedule.want(131)


def test_failures_are_repeated_with_longer_and_longer_pauses() -> None:
    schedule = RefreshSchedule()
    pauses: list[float] = []
    for number in range(1, 30):
        schedule.ended(1_000.0 * number, is_success=False)
        pauses.append(schedule.due_at_s() - 1_000 * number)

    assert pauses == [1, 2, 4, 8, 16, 32, *[60] * 23]
    schedule.ended(50_000, is_success=True)
    assert schedule.failure_count == 0
    assert schedule.due_at_s() == 50_000 + REFRESH_S


@pytest.mark.parametrize("failure_count", [1, 5])
def test_an_unknown_key_does_not_shorten_the_pause_after_a_failure(failure_count: int) -> None:
    schedule = fetched(0)
    for _ in range(failure_count):
        schedule.ended(100, is_success=False)
    due_at_s = schedule.due_at_s()

    assert not schedule.want(100)
    assert schedule.due_at_s() == due_at_s
