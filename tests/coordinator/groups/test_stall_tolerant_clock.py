"""Time that a coordinator did not live through does not count."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.groups.stall_tolerant_clock import STEP_MAX_MS, StallTolerantClock


def test_time_runs_as_usual_while_it_is_looked_at() -> None:
    time = StallTolerantClock(1_000)

    assert [time.read(now_ms) for now_ms in (1_000, 1_500, 6_500)] == [1_000, 1_500, 6_500]


def test_a_standstill_counts_for_a_moment_only() -> None:
    time = StallTolerantClock(0)
    time.read(1_000)

    assert time.read(3_600_000) == 1_000 + STEP_MAX_MS
    assert time.read(3_600_010) == 1_000 + STEP_MAX_MS + 10


def test_a_deadline_far_away_is_looked_for_in_steps() -> None:
    time = StallTolerantClock(0)

    assert time.latest_wakeup(45_000) == STEP_MAX_MS
    assert time.latest_wakeup(700) == 700
    assert time.latest_wakeup(-5) == 0


@given(st.lists(st.integers(0, STEP_MAX_MS)), st.integers(0, 100_000))
def test_who_comes_back_when_told_is_never_late(waits: list[int], deadline_ms: int) -> None:
    time, now_ms = StallTolerantClock(0), 0
    for wait_ms in waits:
        now_ms += wait_ms
        assert time.read(now_ms) == now_ms
    while time.read(now_ms) < deadline_ms:
        assert now_ms < time.latest_wakeup(deadline_ms) <= deadline_ms
        now_ms = time.latest_wakeup(deadline_ms)

    assert now_ms >= deadline_ms
