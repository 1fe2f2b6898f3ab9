"""The clock of programs whose calls are counted."""

import pytest

from bench.slow_clock import SlowClock


def test_a_slow_clock_stretches_sleeps_and_never_jumps() -> None:
    clock = SlowClock()
    before = clock.current_time()
    assert clock.deadline_to_sleep_time(before + 10) == pytest.approx(10, abs=1)

    clock.slow_down(is_slow=True)

    assert clock.current_time() >= before
    assert clock.current_time() - before < 1
    assert clock.deadline_to_sleep_time(clock.current_time() + 10) == pytest.approx(500, abs=1)
