"""Workload of the clients for asyncio: tidelog.aio beside aiokafka with Kafka."""

from collections import defaultdict
from typing import Final

from bench.peers.cases import Case, Workload
from bench.peers.measuring import scaled
from bench.peers.promises import Promise
from bench.peers.results import Sample
from bench.peers.running import Measure, Running

_VALUE_BYTES: Final = 100
_FIRST: Final = 20_000
_COUNT_MAX: Final = 2_000_000
_SENDS: Final = 1_000
_SECONDS: Final = 1.0
"""Approximate seconds of one repetition's producer."""


def _cases(promise: Promise, is_quick: bool) -> list[Case]:
    """Return one partition with 100 bytes, with one copy."""
    del is_quick
    if promise.node_count > 1:
        return []
    what = "100 B, 1 partition, asyncio"
    return [Case("100 B 01", what, _measure(defaultdict(lambda: _FIRST)), 6.0, ("kafka",))]


def _measure(counts: dict[str, int]) -> Measure:
    """Return a measurement that adapts the record count of the next repetition."""

    def measure(running: Running, name: str) -> Sample:
        count = counts[running.system.name]
        more = {"count": count, "value_bytes": _VALUE_BYTES}
        running.errand("create", name)
        (produced,), produce_cpu = running.do(running.order("asyncio_produce", name, **more))
        (consumed,), consume_cpu = running.do(running.order("asyncio_consume", name, **more))
        more["count"] = _SENDS
        (sent,), _ = running.do(running.order("asyncio_send", name, **more))
        running.errand("delete", name)
        rate = count / (produced.ended - produced.began)
        if count == _FIRST:
            counts[running.system.name] = scaled(rate, _SECONDS, low=_FIRST, high=_COUNT_MAX)
        each_us = 1e6 / count
        return {
            "produced": rate,
            "produce_client_us": produced.cpu_seconds * each_us,
            "produce_us": (produce_cpu + produced.cpu_seconds) * each_us,
            "consumed": count / (consumed.ended - consumed.began),
            "consume_client_us": consumed.cpu_seconds * each_us,
            "consume_us": (consume_cpu + consumed.cpu_seconds) * each_us,
            **{share: sent.latencies_ms[share] for share in ("p50", "p99")},
        }

    return measure


ASYNCIO: Final = Workload("asyncio", "log", _cases)
