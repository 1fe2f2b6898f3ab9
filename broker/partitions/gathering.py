"""Gathering of requests for a flush: whether the flush waits a turn of the loop for more of them.

Pure: no clock, no I/O.
"""

from typing import Final, final

_VAIN_MAX: Final = 3
"""Flushes in a row that waited and served one request, after which flushes begin at once."""
_LOOK_EVERY: Final = 16
"""Number of flushes of which one waits nevertheless, to see whether requests come together."""


@final
class Gathering:
    """Decides for each flush of one partition.

    A flush that begins at once serves one of two producers that write at the same time, and the
    other one's flush is a second sync. A producer that is alone would wait in vain.
    """

    __slots__ = ("_is_waiting", "_since_look", "_vain_count", "requested")

    def __init__(self) -> None:
        """Begin with flushes that wait."""
        self.requested = 0
        """Number of requests since the last flush began."""
        self._is_waiting = False
        self._vain_count = 0
        self._since_look = 0

    def is_due(self) -> bool:
        """Return whether the next flush waits a turn; `begins` follows in any case."""
        self._is_waiting = True
        if self._vain_count >= _VAIN_MAX:
            self._since_look += 1
            self._is_waiting = self._since_look == _LOOK_EVERY
            if self._is_waiting:
                self._since_look = 0
        return self._is_waiting

    def begins(self) -> None:
        """Record that a flush begins, which serves all requests so far."""
        if self.requested > 1:
            self._vain_count = 0
        elif self._is_waiting:
            self._vain_count += 1
        self.requested = 0
