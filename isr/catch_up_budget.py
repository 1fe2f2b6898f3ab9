"""Catch-up throttle: the byte budget of replicas that catch up (Kafka: replication quota).

Pure: no clock, no I/O. A reassignment copies whole replicas, which must not crowd out other
replicas. A replica in the ISR, or about to join it, is never throttled: it would hold up the high
watermark, or leave the ISR.
"""

from typing import Final, final

_BURST_S: Final = 0.5
"""Size of the bucket, in seconds of the rate: the maximum burst after a pause."""
_PORTION_S: Final = 0.1
"""Minimum portion, in seconds of the rate: less is not worth a fetch."""


@final
class CatchUpBudget:
    """Token bucket of bytes, at a rate that may change with each call.

    A batch of any size may pass: the budget then goes into debt and waits for longer.
    """

    def __init__(self) -> None:
        """Start with a full budget."""
        self._spent_bytes = 0.0
        """Spent bytes of the burst; more than the burst is debt."""
        self._at_ms: int | None = None

    def available(self, bytes_per_s: int | None, *, now_ms: int) -> int | None:
        """Return the bytes that may be spent now, `None` for any number.

        0 means to wait for `wait_ms`.
        """
        if bytes_per_s is None:
            self._spent_bytes, self._at_ms = 0.0, now_ms
            return None
        self._refill(bytes_per_s, now_ms)
        left = bytes_per_s * _BURST_S - self._spent_bytes
        return int(left) if left >= max(bytes_per_s * _PORTION_S, 1.0) else 0

    def spend(self, count_bytes: int) -> None:
        """Subtract spent bytes from the budget."""
        self._spent_bytes += count_bytes

    def wait_ms(self, bytes_per_s: int | None, *, now_ms: int) -> int:
        """Return the time in ms until bytes may be spent, 0 if they may be now."""
        if bytes_per_s is None or self.available(bytes_per_s, now_ms=now_ms):
            return 0
        missing = self._spent_bytes - bytes_per_s * (_BURST_S - _PORTION_S)
        return max(int(missing * 1000 / bytes_per_s), 0) + 1

    def _refill(self, bytes_per_s: int, now_ms: int) -> None:
        passed_ms = 0 if self._at_ms is None else max(now_ms - self._at_ms, 0)
        self._spent_bytes = max(self._spent_bytes - bytes_per_s * passed_ms / 1000, 0.0)
        self._at_ms = now_ms
