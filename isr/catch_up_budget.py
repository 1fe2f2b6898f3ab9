"""How much a broker may spend on replicas that are being added: they must not crowd out others.

Pure: no clock, no I/O. A reassignment copies whole replicas. Whoever is in sync, or is about to be,
is never counted here: it would hold up what is committed, or fall out of sync.
"""

from typing import Final, final

_BURST_S: Final = 0.5
"""So much time's worth may be spent at once, after a rest."""
_PORTION_S: Final = 0.1
"""Less than so much time's worth is not spent: it is not worth a fetch."""


@final
class CatchUpBudget:
    """Bytes that may be spent now, at a rate that may be another one each time.

    One batch is spent however large it is: the budget goes into debt, and waits for longer.
    """

    def __init__(self) -> None:
        """Begin with a full budget."""
        self._spent_bytes = 0.0
        """Of the burst; what is more is debt."""
        self._at_ms: int | None = None

    def available(self, bytes_per_s: int | None, *, now_ms: int) -> int | None:
        """Return how many bytes may be spent now, `None` for any number.

        0 says that it is worth to wait for `wait_ms`.
        """
        if bytes_per_s is None:
            self._spent_bytes, self._at_ms = 0.0, now_ms
            return None
        self._refill(bytes_per_s, now_ms)
        left = bytes_per_s * _BURST_S - self._spent_bytes
        return int(left) if left >= max(bytes_per_s * _PORTION_S, 1.0) else 0

    def spend(self, count_bytes: int) -> None:
        """Take note of bytes that were spent."""
        self._spent_bytes += count_bytes

    def wait_ms(self, bytes_per_s: int | None, *, now_ms: int) -> int:
        """Return how long it takes until something may be spent, 0 when it may be now."""
        if bytes_per_s is None or self.available(bytes_per_s, now_ms=now_ms):
            return 0
        missing = self._spent_bytes - bytes_per_s * (_BURST_S - _PORTION_S)
        return max(int(missing * 1000 / bytes_per_s), 0) + 1

    def _refill(self, bytes_per_s: int, now_ms: int) -> None:
        passed_ms = 0 if self._at_ms is None else max(now_ms - self._at_ms, 0)
        self._spent_bytes = max(self._spent_bytes - bytes_per_s * passed_ms / 1000, 0.0)
        self._at_ms = now_ms
