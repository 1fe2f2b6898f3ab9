"""Workload that consumes a backlog while a producer adds records."""

from collections import defaultdict
from typing import Final

from bench.peers.cases import Case, Workload
from bench.peers.promises import Promise
from bench.peers.results import Sample
from bench.peers.running import Measure, Running

_VALUE_BYTES: Final = 1_000
_COUNT: Final = 2_000_000
_COUNT_QUICK: Final = 100_000
_MORE: Final = 0.25
"""Records produced during the drain, as a share of the backlog."""


def _cases(promise: Promise, is_quick: bool) -> list[Case]:
    """Return the one there is, beside Kafka: with other clients 2 GB would take the whole time."""
    if promise is not Promise.MEMORY_ONE:
        return []
    count = _COUNT_QUICK if is_quick else _COUNT
    what = f"1 KB, 1 partition, a backlog of {count * _VALUE_BYTES / 1e9:g} GB"
    return [Case("backlog", what, _measure(count), 3.0 if is_quick else 16.0, ("kafka",))]


def _measure(count: int) -> Measure:
    counts = defaultdict[str, int](lambda: count // 10)  # What warms up is small.

    def measure(running: Running, name: str) -> Sample:
        backlog = counts[running.system.name]
        counts[running.system.name] = count
        more = int(backlog * _MORE)
        running.errand("create", name)
        running.do(running.order("produce", name, count=backlog, value_bytes=_VALUE_BYTES))
        (produced, consumed), server_cpu = running.do(
            running.order("produce", name, count=more, value_bytes=_VALUE_BYTES),
            running.order("consume", name, count=backlog + more, value_bytes=_VALUE_BYTES),
        )
        running.errand("delete", name)
        all_cpu = server_cpu + produced.cpu_seconds + consumed.cpu_seconds
        return {
            "drained": (backlog + more) / (consumed.ended - consumed.began),
            "produced": more / (produced.ended - produced.began),
            "drain_us": all_cpu / (backlog + more) * 1e6,
        }

    return measure


DRAIN: Final = Workload("drain", "log", _cases)
