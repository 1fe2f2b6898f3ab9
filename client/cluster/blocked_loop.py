"""Reports of a program that blocks the event loop, so that leases and heartbeats are late.

Shell: reads the clock. Tasks that keep a lease or a membership tell when they wanted to wake up. So
a program without them pays nothing.
"""

import math
from typing import Final, final

import trio

from tidelog.wire.env.env import Probe

_LATE_S: Final = 1.0
"""Seconds by which a timer is late when the loop counts as blocked."""
_INTERVAL_S: Final = 60.0
"""Minimum seconds between two reports."""


@final
class BlockedLoop:
    """Reports timers that are late."""

    def __init__(self, probe: Probe) -> None:
        """Report to `probe`."""
        self._probe = probe
        self._reported_at = -math.inf

    def woke(self, due_at: float) -> None:
        """Report if a timer that was due at this time of trio's clock fires late."""
        now = trio.current_time()
        if now - due_at > _LATE_S and now - self._reported_at >= _INTERVAL_S:
            self._reported_at = now
            self._probe("client.loop_blocked", severity="warning", seconds=round(now - due_at, 1))
