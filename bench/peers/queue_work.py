"""Workload of a queue: messages are sent, received and deleted concurrently."""

from collections import defaultdict
from dataclasses import replace
from typing import Final

from bench.peers.cases import Case, Workload
from bench.peers.measuring import scaled
from bench.peers.promises import Promise
from bench.peers.results import Sample
from bench.peers.running import Measure, Running

_VALUE_BYTES: Final = 1_000
_BATCHES: Final = ((10, 8), (100, 64))
"""Batch sizes and numbers of workers."""
_WORKERS: Final = (1, 8, 64)
"""Numbers of workers that handle one message at a time, in ascending order."""
_WAYS: Final = {"batches": ("batch", ""), "worker": ("worker", ", by queue.work")}
"""By way: the begin of the row's name, and the end of its description."""
_SECONDS: Final = 1.0
"""Approximate seconds of one repetition."""
_FIRST: Final = 500
_COUNT_MAX: Final = 400_000


def _cases(promise: Promise, is_quick: bool) -> list[Case]:
    """Return batch sizes with numbers of workers, and as many senders.

    One message at a time is measured in two ways, by single calls and by tidelog's worker.
    """
    del is_quick
    workers = _WORKERS if promise.node_count == 1 else _WORKERS[:1]
    single = [_case(1, count, way=way) for way in _WAYS for count in workers]
    first = [replace(case, is_in_quick=case.name.endswith("01")) for case in single]
    return first + [_case(batch, count) for batch, count in _BATCHES]


def _case(batch: int, workers: int, *, way: str = "batches") -> Case:
    plural = "" if workers == 1 else "s"
    name, more = _WAYS[way]
    return Case(
        name=f"{name} {batch:03d} workers {workers:02d}",
        what=f"1 KB, batches of {batch}, {workers} worker{plural}{more}",
        measure=_measure(defaultdict(lambda: _FIRST), batch, workers, way=way),
        seconds=2.2,
    )


def _measure(counts: dict[str, int], batch: int, workers: int, *, way: str) -> Measure:
    def measure(running: Running, name: str) -> Sample:
        system = running.system.name
        count = counts[system]
        more = {
            "count": count,
            "value_bytes": _VALUE_BYTES,
            "batch": batch,
            "workers": workers,
            "way": way,
        }
        running.errand("create_queue", name)
        (sent, worked), server_cpu = running.do(
            running.order("send", name, **more), running.order("work", name, **more)
        )
        running.errand("delete_queue", name)
        rate = count / (max(sent.ended, worked.ended) - min(sent.began, worked.began))
        if count == _FIRST:
            low = max(_FIRST, batch * workers) + 1
            counts[system] = scaled(rate, _SECONDS, low=low, high=_COUNT_MAX)
        return {
            "worked": rate,
            "work_server_us": server_cpu / count * 1e6,
            "work_client_us": (sent.cpu_seconds + worked.cpu_seconds) / count * 1e6,
        }

    return measure


QUEUES: Final = Workload("queues", "queue", _cases)
