"""The highest rates at which one Python program produces, and one consumes."""

from typing import Final

from bench.peers.measuring import Measure, Running, Session, scaled
from bench.peers.results import RowId, Sample

_SIZES: Final = {"100 B": 100, "1 KB": 1_000, "64 KB": 64_000}
_BYTES_MAX: Final = 400_000_000
_COUNT_MIN: Final = 200
_FIRST_BYTES: Final = 4_000_000
_SECONDS: Final = 1.0
"""How long one repetition takes, about."""


def run(session: Session) -> None:
    """Each size with one partition and with 16; 100 bytes also with one call for each record."""
    for promise in session.promises:
        with session.running("log", promise) as running:
            for size_name, size in _SIZES.items():
                # Three copies on one machine say what the work costs: one partition is enough.
                for partitions in (1, 16) if promise.node_count == 1 else (1,):
                    ways = ["batches", "records"] if size == min(_SIZES.values()) else ["batches"]
                    for way in ways:
                        if session.is_quick and partitions > 1 and size_name != "100 B":
                            continue
                        counts = dict.fromkeys(running, _first(size))
                        plural = "" if partitions == 1 else "s"
                        case = f"{size_name} {partitions:02d} {way}"
                        how = "one call each" if way == "records" else "the fastest way"
                        what = f"{size_name}, {partitions} partition{plural}, {how}"
                        measure = _measure(counts, size, partitions, way)
                        session.measure(RowId("rates", promise.value, case), what, measure, running)


def _first(size: int) -> int:
    """Return how many records to begin with: few, for nobody knows how fast it is."""
    return max(_FIRST_BYTES // size, _COUNT_MIN)


def _measure(counts: dict[str, int], size: int, partitions: int, way: str) -> Measure:
    """Return what measures once, and says how many records the next repetition gets."""

    def measure(running: Running, name: str) -> Sample:
        count = counts[running.system.name]
        more = {"count": count, "value_bytes": size, "partitions": partitions, "way": way}
        running.do(running.order("create", name, partitions=partitions))
        (produced,), produce_cpu = running.do(running.order("produce", name, **more))
        (consumed,), consume_cpu = running.do(running.order("consume", name, **more))
        running.do(running.order("delete", name, partitions=partitions))
        rate = count / (produced.ended - produced.began)
        high = max(_BYTES_MAX // size, _COUNT_MIN)
        # Only the repetition that warms up changes it much: what is counted has one size.
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
