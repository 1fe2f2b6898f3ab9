"""Clock of the queues: it stands still while requests of one moment are served.

Plain calls. All decisions of one moment have one time, and the clock of the broker is read once.
"""

from typing import final

from tidelog.wire.env.env import Clock


@final
class HeldClock:
    """A clock that can be held; see `wire.env.env.Clock`.

    Invariant: it is only held between plain calls, so that no other task sees a time of the past.
    """

    __slots__ = ("_clock", "_held_ms", "is_held")

    def __init__(self, clock: Clock) -> None:
        """Follow `clock`."""
        self._clock = clock
        self.is_held = False
        """Set it to let every call until `release` return the time of the first one."""
        self._held_ms: int | None = None
        """The time that holds, `None` if it was not read since then."""

    def release(self) -> None:
        """Follow the clock again."""
        self.is_held = False
        self._held_ms = None

    def now_ms(self) -> int:
        """Return the time in Unix milliseconds."""
        if self._held_ms is not None:
            return self._held_ms
        now_ms = self._clock.now_ms()
        if self.is_held:
            self._held_ms = now_ms
        return now_ms
