"""Time as a coordinator lived through it.

Pure: no clock, no I/O. A coordinator that stood still (its process was stopped, the machine slept,
the loop was blocked) has heard nobody in that time, and must not fence everybody when it wakes up:
the heartbeats that came meanwhile are still waiting to be read. So a standstill counts for a moment
only, and who asks for deadlines is told to come back before a pause would look like one.
"""

from typing import Final, final

STEP_MAX_MS: Final = 5_000
"""Time that passes unseen counts for so much at most."""


@final
class StallTolerantClock:
    """A clock that does not run while nobody looks at it for long."""

    def __init__(self, now_ms: int) -> None:
        """Begin at this monotonic time."""
        self._seen_ms = now_ms
        self._own_ms = now_ms

    def read(self, now_ms: int) -> int:
        """Return the coordinator's own time at this monotonic time."""
        self._own_ms += min(max(0, now_ms - self._seen_ms), STEP_MAX_MS)
        self._seen_ms = max(self._seen_ms, now_ms)
        return self._own_ms

    def latest_wakeup(self, own_deadline_ms: int) -> int:
        """Return the monotonic time to look again for a deadline in own time."""
        return self._seen_ms + min(max(0, own_deadline_ms - self._own_ms), STEP_MAX_MS)
