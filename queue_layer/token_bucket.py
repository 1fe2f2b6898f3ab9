"""How much may be sent to one partition of a queue: a bucket that fills at a steady rate.

Pure: no clock, no I/O.

A send is taken as long as anything is left, whole, so that none is too large for ever; what it
takes too much is a debt, and nobody may send before that is paid back. Who is told how long that
takes, and waits, is never refused.
"""

from typing import Final, final

_BURST_S: Final = 1.0
"""For so long may nothing have been sent, and then all of it at once."""


@final
class TokenBucket:
    """What is left of the rate of one partition."""

    __slots__ = ("_at_ms", "_left", "_rate")

    def __init__(self, messages_per_s: float, *, now_ms: int) -> None:
        """Begin full."""
        assert messages_per_s > 0
        self._rate = messages_per_s
        self._left = messages_per_s * _BURST_S
        self._at_ms = now_ms

    @property
    def messages_per_s(self) -> float:
        """The rate."""
        return self._rate

    def wait_ms(self, *, now_ms: int) -> int:
        """Return how long nothing may be sent from now on, 0 if something may be."""
        elapsed_s = max(0, now_ms - self._at_ms) / 1000
        self._at_ms = now_ms
        self._left = min(self._rate * _BURST_S, self._left + elapsed_s * self._rate)
        # Rounded up, so that who waits for so long has not come too early.
        return 0 if self._left > 0 else int(-self._left / self._rate * 1000) + 1

    def take(self, count: int) -> None:
        """Take note that so many messages were sent."""
        self._left -= count
