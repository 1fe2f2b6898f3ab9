"""Tests of the clock of queues."""

from typing import final

from tidelog.broker.queues.held_clock import HeldClock


@final
class CountingClock:
    """A clock that advances with each read."""

    def __init__(self) -> None:
        self.time_ms = 0

    def now_ms(self) -> int:
        self.time_ms += 1
        return self.time_ms


def test_it_stands_still_only_while_it_is_held() -> None:
    clock = HeldClock(CountingClock())
    assert [clock.now_ms(), clock.now_ms()] == [1, 2]

    clock.is_held = True
    assert [clock.now_ms(), clock.now_ms()] == [3, 3], "it is read when it is used first"

    clock.release()
    assert [clock.now_ms(), clock.now_ms()] == [4, 5]
    clock.is_held = True
    assert clock.now_ms() == 6
