"""How long a record takes from when it was due until a consumer in another process has it."""

from collections.abc import Mapping
from statistics import median
from typing import Final

from bench.peers.load import run_loads
from bench.peers.measuring import Measure, Running, Session, say, scaled
from bench.peers.promises import Promise
from bench.peers.results import RowId, Sample

_VALUE_BYTES: Final = 100
_SHARES: Final = {"50 %": 0.5, "80 %": 0.8}
_COMMON: Final = 5_000
"""Records a second, at which all are measured."""
_SAMPLES_MAX: Final = 20_000
"""A second: where there are more records, some do not say when they were due."""
_FIRST: Final = 20_000
_AT_ONCE: Final = 1e9
"""A rate at which everything is due from the beginning."""


def run(session: Session) -> None:
    """At one rate for all, then at shares of what each can do."""
    for promise in session.promises:
        with session.running("log", promise) as running:
            seconds = session.choose(5, 3)
            highest = _highest_rates(running, promise.value)
            able = {name: running[name] for name in highest}
            common = dict.fromkeys(highest, float(_COMMON))
            _at(session, promise, f"{_COMMON:,} records/s", _measure(common, seconds), able)
            for share, factor in _SHARES.items():
                own = {name: rate * factor for name, rate in highest.items()}
                what = f"{share} of the own highest rate"
                _at(session, promise, what, _measure(own, seconds), able)


def _at(
    session: Session, promise: Promise, what: str, measure: Measure, able: Mapping[str, Running]
) -> None:
    case = "common" if what.endswith("/s") else what
    session.measure(RowId("latency", promise.value, case), what, measure, able)


def _highest_rates(running: Mapping[str, Running], name: str) -> dict[str, float]:
    """Return what each takes; a system that fails is not in it."""
    found: dict[str, float] = {}
    for each, system in running.items():
        try:
            found[each] = _highest(system, name)
        except RuntimeError as error:
            say(f"latency: {each} failed: {error}")
    return found


def _highest(running: Running, name: str) -> float:
    """Return records a second through both programs at once, as fast as they can."""
    count, found = _FIRST, list[float]()
    for number in range(4):
        topic = f"highest-{name}-{number}"
        more = {"count": count, "value_bytes": _VALUE_BYTES, "rate": _AT_ONCE, "sample_every": 10}
        running.do(running.order("create", topic))
        produced, consumed = run_loads(
            [running.order("pace", topic, **more), running.order("tail", topic, **more)]
        )
        running.do(running.order("delete", topic))
        found.append(count / (consumed.ended - produced.began))
        count = scaled(found[-1], 2, low=1_000, high=2_000_000)
    say(f"{name}: {running.system.name} takes {median(found[1:]):,.0f} records/s")
    return median(found[1:])


def _measure(rates: dict[str, float], seconds: int) -> Measure:
    def measure(running: Running, name: str) -> Sample:
        rate = rates[running.system.name]
        count = max(int(rate * seconds), 100)
        more = {
            "count": count,
            "value_bytes": _VALUE_BYTES,
            "rate": rate,
            "sample_every": max(int(rate / _SAMPLES_MAX), 1),
        }
        running.do(running.order("create", name))
        (_, tailed), server_cpu = running.do(
            running.order("pace", name, **more), running.order("tail", name, **more)
        )
        running.do(running.order("delete", name))
        return {"rate": rate, "work_server_us": server_cpu / count * 1e6, **tailed.latencies_ms}

    return measure
