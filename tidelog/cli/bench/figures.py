"""Figures of `tidelog bench`: what was counted, for how long, and the rates.

Pure: no clock, no I/O. Times are seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

_MB: Final = 1_000_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of a run."""

    seconds: float
    """Duration of each figure, besides its warm-up."""
    count_max: int | None
    """Records or messages of each figure, at most; `None` without a limit."""
    size_bytes: int
    """Length of each value."""
    batch: int
    """Records of a call, and messages of a request."""
    acks: str
    partitions: int
    compression: str

    @property
    def warm_up_s(self) -> float:
        """Duration at the start of a figure that does not count."""
        return min(1.0, self.seconds / 4)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Records or messages in a period."""

    count: int
    seconds: float
    size_bytes: int
    """Length of each value."""

    @property
    def per_second(self) -> float:
        """Records or messages a second."""
        return self.count / self.seconds if self.seconds > 0 else 0.0

    @property
    def mb_per_second(self) -> float:
        """Megabytes of values a second."""
        return self.per_second * self.size_bytes / _MB


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Times of single records."""

    sorted_s: Sequence[float]
    """The times, the shortest first."""

    def quantile_ms(self, part: float) -> float | None:
        """Return the time that this part of the records stays within; `None` without records."""
        if not self.sorted_s:
            return None
        index = min(len(self.sorted_s) - 1, int(part * len(self.sorted_s)))
        return self.sorted_s[index] * 1000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All figures of a run."""

    produce: Rate
    consume: Rate
    latencies: Latencies
    send: Rate
    receive: Rate


def figures_as_json(plan: Plan, figures: Figures) -> dict[str, object]:
    """Return the options and the figures."""
    rates = {
        "produce": figures.produce,
        "consume": figures.consume,
        "queue_send": figures.send,
        "queue_receive_and_delete": figures.receive,
    }
    return {
        "options": {
            "seconds": plan.seconds if plan.count_max is None else None,
            "warm_up_seconds": plan.warm_up_s,
            "records": plan.count_max,
            "size_bytes": plan.size_bytes,
            "batch": plan.batch,
            "acks": plan.acks,
            "partitions": plan.partitions,
            "compression": plan.compression,
        },
        **{name: _rate_as_json(rate) for name, rate in rates.items()},
        "latency": {
            "records": len(figures.latencies.sorted_s),
            "p50_ms": figures.latencies.quantile_ms(0.5),
            "p99_ms": figures.latencies.quantile_ms(0.99),
        },
    }


def _rate_as_json(rate: Rate) -> dict[str, object]:
    return {
        "count": rate.count,
        "seconds": rate.seconds,
        "per_second": rate.per_second,
        "mb_per_second": rate.mb_per_second,
    }


COLUMNS: Final = ("FIGURE", "RATE", "MB/S", "P50", "P99", "MEASURED")
NUMBERS: Final = ("RATE", "MB/S", "P50", "P99")


def rows_of(figures: Figures) -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    return [
        _row("produce", "record", figures.produce),
        _row("consume", "record", figures.consume),
        _latency_row(figures.latencies),
        _row("queue: send", "message", figures.send),
        _row("queue: receive and delete", "message", figures.receive),
    ]


def _row(name: str, thing: str, rate: Rate) -> tuple[str, ...]:
    measured = f"{rate.count:,} {thing}s in {rate.seconds:.1f} s"
    return (name, f"{rate.per_second:,.0f}/s", f"{rate.mb_per_second:,.1f}", "", "", measured)


def _latency_row(latencies: Latencies) -> tuple[str, ...]:
    measured = f"{len(latencies.sorted_s):,} records, one at a time"
    median, tail = latencies.quantile_ms(0.5), latencies.quantile_ms(0.99)
    return ("produce to consume", "", "", _ms(median), _ms(tail), measured)


def _ms(time_ms: float | None) -> str:
    return "-" if time_ms is None else f"{time_ms:.2f} ms"


def described(plan: Plan) -> str:
    """Return the options in one line."""
    compression = "" if plan.compression == "none" else f", {plan.compression}"
    partitions = "1 partition" if plan.partitions == 1 else f"{plan.partitions} partitions"
    return (
        f"{partitions}, values of {plan.size_bytes:,} bytes, batches of {plan.batch:,},"
        f" acks {plan.acks}{compression}"
    )
