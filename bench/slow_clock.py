"""A clock of trio that can be slowed down, so that work by time does not depend on the machine."""

from time import perf_counter
from typing import Final, final

import trio

_SLOW: Final = 0.02


@final
class SlowClock(trio.abc.Clock):
    """Clock that runs like that of the system, or fifty times slower."""

    def __init__(self) -> None:
        """Create a clock that runs like that of the system."""
        self._rate = 1.0
        self._real = perf_counter()
        self._shown = 0.0

    def slow_down(self, *, is_slow: bool) -> None:
        """Change the pace; the shown time never jumps."""
        self._shown, self._real = self.current_time(), perf_counter()
        self._rate = _SLOW if is_slow else 1.0

    def start_clock(self) -> None:
        """Do nothing; the clock runs already."""

    def current_time(self) -> float:
        """Return the shown time in seconds."""
        return self._shown + (perf_counter() - self._real) * self._rate

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the real seconds until the clock shows a deadline."""
        return (deadline - self.current_time()) / self._rate
