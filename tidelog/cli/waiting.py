"""Reasons for which a command waits, by the events of its client.

Pure: no clock, no I/O. Times are seconds of the caller's clock.
"""

from typing import NamedTuple, final

_SILENT_S = 2.0
"""Seconds that a command waits without a line."""
_AGAIN_S = 10.0
"""Seconds between two lines with different reasons."""
_STREAK_S = 2.5
"""Seconds after which an event that was not repeated is over; clients retry at least so often."""


class _Wait(NamedTuple):
    since: float
    reason: str
    deadline: float | None
    """Time of the last attempt; `None` if another setting decides about that."""


@final
class Waiting:
    """The reasons for which a client has no result, and the lines that are due about them."""

    def __init__(self, broker: str, *, now: float, connect_timeout: float) -> None:
        """Start with a client that connects to `broker`."""
        reason = f"no answer from {broker} yet"
        self._connecting: _Wait | None = _Wait(now, reason, now + connect_timeout)
        self._requests: dict[object, _Wait] = {}
        self._has_failed = False
        """Whether a request has failed, and not only has no answer."""
        self._blocked: _Wait | None = None
        self._blocked_at = now
        self._shown_reason = ""
        self._shown_at: float | None = None

    def connected(self) -> None:
        """Record that a broker has answered."""
        self._connecting = None

    def began(self, request_id: object, reason: str, *, deadline: float, now: float) -> None:
        """Record that a request waits, or waits again, at most until `deadline`."""
        known = self._requests.get(request_id)
        since = now if known is None else known.since
        self._has_failed = self._has_failed or known is not None
        self._requests[request_id] = _Wait(since, reason, deadline)

    def ended(self, request_id: object) -> None:
        """Record that a request has its result or its error."""
        self._requests.pop(request_id, None)

    def blocked(self, reason: str, *, now: float) -> None:
        """Record that a producer or consumer makes no progress; it reports that repeatedly."""
        is_new = self._blocked is None or now - self._blocked_at > _STREAK_S
        since = now if is_new or self._blocked is None else self._blocked.since
        self._blocked = _Wait(since, reason, None)
        self._blocked_at = now

    def due_line(self, now: float) -> str | None:
        """Return the line to show now, if there is one; each reason is shown once in a row."""
        wait = self._present(now)
        if wait is None or now - wait.since < _SILENT_S or wait.reason == self._shown_reason:
            return None
        if self._shown_at is not None and now - self._shown_at < _AGAIN_S:
            return None
        self._shown_reason, self._shown_at = wait.reason, now
        if wait.deadline is None:
            return f"waiting: {wait.reason}"
        return f"waiting, up to {max(0, wait.deadline - now):.0f} s more: {wait.reason}"

    def _present(self, now: float) -> _Wait | None:
        if self._connecting is not None and not self._has_failed:
            return self._connecting
        if self._requests:
            return min(self._requests.values(), key=lambda wait: wait.since)
        return self._blocked if now - self._blocked_at <= _STREAK_S else None
