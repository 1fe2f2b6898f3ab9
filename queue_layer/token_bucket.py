"""Token bucket: the send rate of one partition of a queue.

Pure: no clock, no I/O.

A send is accepted whole as long as any tokens are left, so that no send is too large for ever. Its
excess is a debt, and no send is accepted before that is paid back. A sender that waits for as long
as it was told is never refused.
"""

from typing import Final, final

_BURST_S: Final = 1.0
"""Seconds of the rate that an idle bucket holds, for a burst."""


@final
class TokenBucket:
    """Tokens left of the rate of one partition."""

    __slots__ = ("_at_ms", "_left", "_rate")

    def __init__(self, messages_per_s: float, *, now_ms: int) -> None:
        """Start full."""
        assert messages_per_s > 0
        self._rate = messages_per_s
        self._left = messages_per_s * _BURST_S
        self._at_ms = now_ms

    @property
    def messages_per_s(self) -> float:
        """Rate in messages per second."""
        return self._rate

    def wait_ms(self, *, now_ms: int) -> int:
        """Return the milliseconds until the next send is accepted, 0 if it is now."""
        elapsed_s = max(0, now_ms - self._at_ms) / 1000
        self._at_ms = now_ms
        self._left = min(self._rate * _BURST_S, self._left + elapsed_s * self._rate)
        # Rounded up, so that a sender that waits for so long is not too early.
        return 0 if self._left > 0 else int(-self._left / self._rate * 1000) + 1

    def take(self, count: int) -> None:
        """Take tokens for sent messages."""
        self._left -= count
