"""The coordinator's clock, which does not count the coordinator's own pauses.

Pure: no clock, no I/O. A paused coordinator (its process was stopped, the machine slept, the loop
was blocked) has received nothing in that time. It must not fence all members when it continues:
their heartbeats are still waiting to be read. So a pause counts for a moment only, and callers must
come back for deadlines before a gap would look like a pause.
"""

from typing import Final, final

STEP_MAX_MS: Final = 5_000
"""Maximum that a time without a call counts for."""


@final
class StallTolerantClock:
    """A clock that stops during a long time without a call."""

    def __init__(self, now_ms: int) -> None:
        """Start at this monotonic time."""
        self._seen_ms = now_ms
        self._own_ms = now_ms

    def read(self, now_ms: int) -> int:
        """Return the coordinator's own time at this monotonic time."""
        self._own_ms += min(max(0, now_ms - self._seen_ms), STEP_MAX_MS)
        self._seen_ms = max(self._seen_ms, now_ms)
        return self._own_ms

    def latest_wakeup(self, own_deadline_ms: int) -> int:
        """Return the latest monotonic time of the next call for a deadline in own time."""
        return self._seen_ms + min(max(0, own_deadline_ms - self._own_ms), STEP_MAX_MS)
