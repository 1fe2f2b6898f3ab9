"""Workload that measures latency from a record's due time to a consumer in another process."""

from collections.abc import Callable
from statistics import median
from typing import Final

from bench.peers.cases import Case, Workload
from bench.peers.load import run_loads
from bench.peers.measuring import say, scaled
from bench.peers.promises import Promise
from bench.peers.results import Sample
from bench.peers.running import Measure, Running

_VALUE_BYTES: Final = 100
_FEW_PEERS: Final = ("kafka",)
_SHARES: Final = {"50 %": 0.5, "80 %": 0.8}
_COMMON: Final = 5_000
"""Common rate of all systems, in records a second."""
_SECONDS: Final = 3
"""Seconds of the schedule."""
_SAMPLES_MAX: Final = 20_000
"""Limit of records a second that carry their due time; at higher rates some carry none."""
_FIRST: Final = 20_000
_AT_ONCE: Final = 1e9
"""Rate at which all records are due at the start."""


def _cases(promise: Promise, is_quick: bool) -> list[Case]:
    """Return a common rate (three copies: for Kafka), and shares of each highest rate."""
    del is_quick
    rate = f"{_COMMON:,} records/s"
    peers = () if promise.node_count == 1 else _FEW_PEERS
    found = [Case("common", rate, _measure(lambda _: _COMMON), _SECONDS + 1.2, peers)]
    if promise is Promise.MEMORY_ONE:
        highest = _HighestRates()
        for share, factor in _SHARES.items():
            what = f"{share} of the own highest rate"
            measure = _measure(highest.share(factor))
            seconds = _SECONDS + 2.0
            found.append(Case(what, what, measure, seconds, _FEW_PEERS, is_in_quick=False))
    return found


class _HighestRates:
    """Highest rate of each system, measured at the first use."""

    def __init__(self) -> None:
        self._found: dict[str, float] = {}

    def share(self, factor: float) -> Callable[[Running], float]:
        """Return a function for a share of the highest rate, in records a second."""

        def rate(running: Running) -> float:
            name = running.system.name
            if name not in self._found:
                self._found[name] = _highest(running, running.promise.value)
            return self._found[name] * factor

        return rate


def _highest(running: Running, name: str) -> float:
    """Return the highest rate of a concurrent producer and consumer, in records a second."""
    count, found = _FIRST, list[float]()
    for number in range(4):
        topic = f"highest-{name}-{number}"
        more = {"count": count, "value_bytes": _VALUE_BYTES, "rate": _AT_ONCE, "sample_every": 10}
        running.errand("create", topic)
        produced, consumed = run_loads(
            [running.order("pace", topic, **more), running.order("tail", topic, **more)]
        )
        running.errand("delete", topic)
        found.append(count / (consumed.ended - produced.began))
        count = scaled(found[-1], 2, low=1_000, high=2_000_000)
    say(f"{name}: {running.system.name} takes {median(found[1:]):,.0f} records/s")
    return median(found[1:])


def _measure(rate_of: Callable[[Running], float]) -> Measure:
    def measure(running: Running, name: str) -> Sample:
        rate = rate_of(running)
        count = max(int(rate * _SECONDS), 100)
        more = {
            "count": count,
            "value_bytes": _VALUE_BYTES,
            "rate": rate,
            "sample_every": max(int(rate / _SAMPLES_MAX), 1),
        }
        running.errand("create", name)
        (_, tailed), server_cpu = running.do(
            running.order("pace", name, **more), running.order("tail", name, **more)
        )
        running.errand("delete", name)
        return {"rate": rate, "work_server_us": server_cpu / count * 1e6, **tailed.latencies_ms}

    return measure


LATENCY: Final = Workload("latency", "log", _cases)
