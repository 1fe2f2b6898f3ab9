"""Orders and outcomes of load processes. Pure."""

from dataclasses import dataclass, field
from typing import Final

CLOCK_BYTES: Final = 20
"""Digits of the due time at the start of a value: nanoseconds, in decimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One order for one process."""

    system: str
    role: str
    """`create`, `delete`, `produce`, `consume`, `pace`, `tail`, `send`, `work`, `delay`,
    `expire`; `asyncio_produce`, `asyncio_consume`, `asyncio_send`."""
    addresses: str
    """`host:port`, several of them separated by commas."""
    name: str
    """Name of the topic, stream or queue."""
    promise: str
    count: int = 0
    """Messages."""
    value_bytes: int = 100
    partitions: int = 1
    way: str = "batches"
    """`records`: one call for each record; `batches`: the fastest that the client offers.
    Queues, `worker`: what the client offers beside single calls, or else the same as `batches`."""
    batch: int = 1
    """Queues: messages of one call."""
    workers: int = 1
    """Queues: tasks that work at once."""
    hidden_s: int = 0
    """Queues: seconds of the delay, or of the visibility timeout; 0 for the system's default."""
    rate: float = 0.0
    """`pace`: messages a second; 0 for as many as possible."""
    sample_every: int = 1
    """`pace`: one message in this many carries its due time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of an order; times are seconds of the clock that all processes share."""

    began: float
    ended: float
    cpu_seconds: float
    """CPU seconds of this process, user and system, all threads."""
    count: int
    """Messages done."""
    latencies_ms: dict[str, float] = field(default_factory=dict[str, float])
    """`tail` and `work`: from due to arrived; `asyncio_send`: of one send; by percentile."""


def percentile(ordered: list[float], share: float) -> float:
    """Return the smallest value that `share` (0 to 1) of all values do not exceed.

    Raises:
        IndexError: There are no values.
    """
    rank = -int(-share * len(ordered) // 1)  # Rounded up.
    return ordered[max(rank, 1) - 1]


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Summarise latencies, in milliseconds; empty without any."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {name: percentile(ordered, share) * 1e3 for name, share in shares.items()}


@dataclass(frozen=True, slots=True)
class Schedule:
    """Due times of messages at a fixed rate, independent of the system's speed."""

    start: float
    rate: float
    """Messages a second."""
    count: int

    def due_at(self, number: int) -> float:
        """Return the due time of a message; the first one has the number 0."""
        return self.start + number / self.rate

    def due_count(self, now: float) -> int:
        """Return the number of messages due by now, including those already sent."""
        if now < self.start:
            return 0
        return min(int((now - self.start) * self.rate) + 1, self.count)
