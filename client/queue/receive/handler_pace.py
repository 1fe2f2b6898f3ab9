"""Pace of a worker's handlers: decides how many messages the worker has in hand.

Pure: no clock, no I/O. A message in hand saves its handler the wait for a broker, which is of use
to fast handlers. With slow ones it would wait for long, while another worker may be idle.
"""

from typing import Final, final

_WAIT_S: Final = 0.1
"""Maximum seconds that a message is expected to be in hand."""
_WAIT_PART: Final = 0.05
"""The same, as a part of the visibility timeout."""
_PATIENCE_S: Final = 1.0
"""Seconds in hand after which a message is returned: handlers are slower than expected."""
_PATIENCE_PART: Final = 0.1
"""The same, as a part of the visibility timeout."""
_TIMEOUT_MIN_S: Final = 0.1
_BURST_S: Final = 0.001
"""Seconds of work that are in hand in any case, up to `_BURST_MAX` messages."""
_BURST_MAX: Final = 8
_INSTANT_S: Final = 0.0002
"""Mean seconds of handlers that probably do not wait for anything."""
_WEIGHT: Final = 0.2
"""Weight of the latest handler in the mean."""


@final
class HandlerPace:
    """Mean duration of handlers, and what follows from it."""

    def __init__(self, concurrency: int) -> None:
        """Start with nothing in hand: the first handler may be slow."""
        self.ahead = 0
        """Maximum messages in hand, up to the number of handlers, or a few if they are fast."""
        self.is_instant = False
        """Whether a handler probably ends in the turn of the loop in which it starts."""
        self.patience_s = _PATIENCE_S
        """Seconds in hand after which a message is returned."""
        self._concurrency = concurrency
        self._wait_s = _WAIT_S
        self._mean_s: float | None = None

    def limit(self, visibility_timeout_s: float) -> None:
        """Set the visibility timeout that is left at the arrival of messages; it may be over."""
        visibility_timeout_s = max(visibility_timeout_s, _TIMEOUT_MIN_S)
        self._wait_s = min(_WAIT_S, _WAIT_PART * visibility_timeout_s)
        self.patience_s = min(_PATIENCE_S, _PATIENCE_PART * visibility_timeout_s)

    def note(self, seconds: float) -> None:
        """Note the duration of a handler."""
        mean_s = self._mean_s
        self._mean_s = seconds if mean_s is None else mean_s + (seconds - mean_s) * _WEIGHT
        self._decide(self._mean_s)

    def slow_down(self) -> None:
        """Have nothing in hand until handlers are fast again."""
        self._mean_s = max(self._mean_s or 0.0, 2 * self._concurrency * _WAIT_S)
        self._decide(self._mean_s)

    def _decide(self, mean_s: float) -> None:
        """Set the number of messages in hand.

        A message waits for a part of a handler's time: as many handlers take the others.
        """
        most, burst = self._concurrency, _BURST_MAX
        if mean_s > self._wait_s:
            most = int(self._wait_s * self._concurrency / mean_s)
        if mean_s * _BURST_MAX > _BURST_S * self._concurrency:
            burst = int(_BURST_S * self._concurrency / mean_s)
        self.ahead = max(most, burst)
        self.is_instant = mean_s < _INSTANT_S
