"""Token bucket: the send rate of one partition of a queue, and the rates of a principal's quotas.

Pure: no clock, no I/O.

A send is accepted whole as long as any tokens are left, so that no send is too large for ever. Its
excess is a debt, and no send is accepted before that is paid back. A sender that waits for as long
as it was told is never refused. A principal's requests are what is sent, and their bytes or their
time the tokens.
"""

from typing import Final, final

_BURST_S: Final = 1.0
"""Seconds of the rate that an idle bucket holds, for a burst."""


@final
class TokenBucket:
    """Tokens left of one rate."""

    __slots__ = ("_at_ms", "_left", "_rate")

    def __init__(self, tokens_per_s: float, *, now_ms: int) -> None:
        """Start full."""
        assert tokens_per_s > 0
        self._rate = tokens_per_s
        self._left = tokens_per_s * _BURST_S
        self._at_ms = now_ms

    @property
    def tokens_per_s(self) -> float:
        """Rate in tokens per second."""
        return self._rate

    def change_rate(self, tokens_per_s: float, *, now_ms: int) -> None:
        """Set the rate from now on; a debt stays."""
        assert tokens_per_s > 0
        if tokens_per_s != self._rate:
            self.wait_ms(now_ms=now_ms)
            self._rate = tokens_per_s
            self._left = min(self._left, tokens_per_s * _BURST_S)

    def wait_ms(self, *, now_ms: int) -> int:
        """Return the milliseconds until the next send is accepted, 0 if it is now."""
        elapsed_s = max(0, now_ms - self._at_ms) / 1000
        self._at_ms = now_ms
        self._left = min(self._rate * _BURST_S, self._left + elapsed_s * self._rate)
        # Rounded up, so that a sender that waits for so long is not too early.
        return 0 if self._left > 0 else int(-self._left / self._rate * 1000) + 1

    def take(self, count: float) -> None:
        """Take tokens for a send."""
        self._left -= count
