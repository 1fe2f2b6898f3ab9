"""Turns of connections: whether their requests are served at their end, or together in a task.

Pure: no clock, no I/O.
"""

from typing import Final, final

_PROBE_EVERY: Final = 16
"""Number of turns of which one is served by the task, to count the turns that come together."""
_LONELY_TICKS: Final = 3
"""Number of ticks of the task with one turn each, after which turns are served at their end."""


@final
class Turns:
    """Decides, for the end of each turn, between serving at once and waiting for the task.

    A tick of the task serves the turns of all connections that are busy in a turn of the loop, and
    makes one batch of each journal. A connection that is busy alone should not wait for it.
    """

    __slots__ = ("_lonely_ticks", "_since_probe", "_waiting")

    def __init__(self) -> None:
        """Begin with ticks of the task."""
        self._waiting = 0
        """Turns that wait for the tick of the task."""
        self._since_probe = 0
        self._lonely_ticks = 0
        """Ticks of the task in a row that served one turn each."""

    def is_served_now(self) -> bool:
        """Return whether to serve a turn at its end; if not, it waits for the tick of the task."""
        if self._lonely_ticks >= _LONELY_TICKS and not self._waiting:
            self._since_probe += 1
            if self._since_probe < _PROBE_EVERY:
                return True
            self._since_probe = 0
        self._waiting += 1
        return False

    def ticked(self) -> None:
        """Count a tick of the task, which serves all waiting turns."""
        if self._waiting:
            self._lonely_ticks = self._lonely_ticks + 1 if self._waiting == 1 else 0
            self._waiting = 0
