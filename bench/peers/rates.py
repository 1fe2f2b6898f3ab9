"""Workload that measures the highest rates of one Python producer and one Python consumer."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bench.peers.cases import Case, Workload
from bench.peers.measuring import scaled
from bench.peers.promises import Promise
from bench.peers.results import Sample
from bench.peers.running import Measure, Running

_SIZES: Final = {"100 B": 100, "1 KB": 1_000, "64 KB": 64_000}
_BYTES_MAX: Final = 400_000_000
_COUNT_MIN: Final = 200
_FIRST_BYTES: Final = 4_000_000
_SECONDS: Final = 1.0
"""Approximate seconds of one repetition."""


_MANY: Final = 1_000
_MANY_PEERS: Final = ("kafka", "redis")
"""Systems that support a thousand partitions in one server."""


def _cases(promise: Promise, is_quick: bool) -> list[Case]:
    """Return all combinations with one copy in memory, and a selection for other promises."""
    del is_quick
    if promise is not Promise.MEMORY_ONE:
        large_peers = () if promise.node_count == 1 else ("kafka",)
        return [_case("100 B", 1), _case("64 KB", 1, peers=large_peers)]
    return [
        _case("100 B", 1),
        _case("100 B", 1, "records", peers=("kafka",)),
        _case("64 KB", 1),
        _case("1 KB", 1),
        _case("100 B", 16),
        replace(_case("1 KB", 16, peers=("kafka",)), is_in_quick=False),
        replace(_case("100 B", _MANY, peers=_MANY_PEERS), is_in_quick=False),
    ]


def _case(size: str, partitions: int, way: str = "batches", *, peers: Sequence[str] = ()) -> Case:
    plural = "" if partitions == 1 else "s"
    how = "one call each" if way == "records" else "the fastest way"
    return Case(
        name=f"{size} {partitions:02d} {way}",
        what=f"{size}, {partitions:,} partition{plural}, {how}",
        measure=_measure(
            defaultdict(lambda: _first(_SIZES[size])), _SIZES[size], partitions, way=way
        ),
        seconds=2.5 if partitions < _MANY else 8.0,
        peers=peers,
    )


def _first(size: int) -> int:
    """Return the records of the first repetition: few, because the rate is unknown."""
    return max(_FIRST_BYTES // size, _COUNT_MIN)


def _measure(counts: dict[str, int], size: int, partitions: int, *, way: str) -> Measure:
    """Return a measurement that adapts the record count of the next repetition."""

    def measure(running: Running, name: str) -> Sample:
        count = counts[running.system.name]
        more = {"count": count, "value_bytes": size, "partitions": partitions, "way": way}
        running.errand("create", name, partitions=partitions)
        (produced,), produce_cpu = running.do(running.order("produce", name, **more))
        (consumed,), consume_cpu = running.do(running.order("consume", name, **more))
        running.errand("delete", name, partitions=partitions)
        rate = count / (produced.ended - produced.began)
        high = max(_BYTES_MAX // size, _COUNT_MIN)
        # Mostly the warm-up changes the count, so measured repetitions have one size.
        if count == _first(size):
            counts[running.system.name] = scaled(rate, _SECONDS, low=_COUNT_MIN, high=high)
        each_us = 1e6 / count
        return {
            "produced": rate,
            "produce_server_us": produce_cpu * each_us,
            "produce_client_us": produced.cpu_seconds * each_us,
            "produce_us": (produce_cpu + produced.cpu_seconds) * each_us,
            "consumed": count / (consumed.ended - consumed.began),
            "consume_server_us": consume_cpu * each_us,
            "consume_client_us": consumed.cpu_seconds * each_us,
            "consume_us": (consume_cpu + consumed.cpu_seconds) * each_us,
        }

    return measure


RATES: Final = Workload("rates", "log", _cases)
