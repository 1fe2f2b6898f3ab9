"""Recent traffic of one partition per second, from its counters.

Pure: no clock, no I/O; times are seconds of a monotonic clock.
"""

from typing import Final, final

from tidelog.broker.partitions.traffic import PartitionTraffic

HALF_LIFE_S: Final = 30.0
"""Age at which traffic has half the weight of that of now."""
_NEGLIGIBLE: Final = 1e-3
_STEP_S: Final = 1.0
"""Minimum time between two updates: less would measure single requests."""


@final
class TrafficRate:
    """Exponentially decaying averages, as the load average of Unix."""

    __slots__ = (
        "_at",
        "_received_bytes",
        "_received_records",
        "_sent_bytes",
        "received_bytes_per_s",
        "received_records_per_s",
        "sent_bytes_per_s",
    )

    def __init__(self, now: float) -> None:
        """Begin with counters of 0."""
        self._at = now
        self._received_bytes = self._received_records = self._sent_bytes = 0
        self.received_bytes_per_s = 0.0
        """Bytes of appended batches."""
        self.received_records_per_s = 0.0
        self.sent_bytes_per_s = 0.0
        """Bytes of batches in replies to consumers."""

    @property
    def bytes_per_s(self) -> float:
        """Bytes in both directions."""
        return self.received_bytes_per_s + self.sent_bytes_per_s

    def update(self, traffic: PartitionTraffic, now: float) -> None:
        """Take the traffic up to now into account."""
        elapsed = now - self._at
        if elapsed < _STEP_S:
            return
        self._at = now
        received_bytes = traffic.received_bytes - self._received_bytes
        received_records = traffic.received_records - self._received_records
        sent_bytes = traffic.sent_bytes - self._sent_bytes
        if not (received_bytes or received_records or sent_bytes) and self.bytes_per_s == 0:
            return  # Nearly all partitions of a broker with very many.
        self._received_bytes = traffic.received_bytes
        self._received_records = traffic.received_records
        self._sent_bytes = traffic.sent_bytes
        kept = 0.5 ** (elapsed / HALF_LIFE_S)
        new = (1 - kept) / elapsed
        self.received_bytes_per_s = self.received_bytes_per_s * kept + received_bytes * new
        self.received_records_per_s = self.received_records_per_s * kept + received_records * new
        self.sent_bytes_per_s = self.sent_bytes_per_s * kept + sent_bytes * new
        if self.bytes_per_s < _NEGLIGIBLE:
            self.received_bytes_per_s = self.received_records_per_s = self.sent_bytes_per_s = 0.0
