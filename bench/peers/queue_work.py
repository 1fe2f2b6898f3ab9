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
_FEW: Final = ((1, 1), (10, 8), (100, 64))
_MORE: Final = ((1, 8), (1, 64))
"""Batch sizes and numbers of workers, in ascending order."""
_SECONDS: Final = 1.0
"""Approximate seconds of one repetition."""
_FIRST: Final = 500
_COUNT_MAX: Final = 400_000


def _cases(promise: Promise, is_quick: bool) -> list[Case]:
    """Return batch sizes with numbers of workers, and as many senders."""
    del is_quick
    chosen = [_case(batch, workers) for batch, workers in _FEW]
    if promise is Promise.MEMORY_ONE:
        more = [_case(batch, workers) for batch, workers in _MORE]
        return chosen + [replace(case, is_in_quick=False) for case in more]
    return chosen


def _case(batch: int, workers: int) -> Case:
    plural = "" if workers == 1 else "s"
    return Case(
        name=f"batch {batch:03d} workers {workers:02d}",
        what=f"1 KB, batches of {batch}, {workers} worker{plural}",
        measure=_measure(defaultdict(lambda: _FIRST), batch, workers),
        seconds=2.2,
    )


def _measure(counts: dict[str, int], batch: int, workers: int) -> Measure:
    def measure(running: Running, name: str) -> Sample:
        system = running.system.name
        count = counts[system]
        more = {"count": count, "value_bytes": _VALUE_BYTES, "batch": batch, "workers": workers}
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
