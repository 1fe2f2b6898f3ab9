"""Work through a queue: messages are sent, received and deleted, all at the same time."""

from typing import Final

from bench.peers.measuring import Measure, Running, Session, scaled
from bench.peers.results import RowId, Sample

_VALUE_BYTES: Final = 1_000
_CASES: Final = tuple((batch, workers) for batch in (1, 10, 100) for workers in (1, 8, 64))
_CASES_QUICK: Final = ((1, 1), (10, 8), (100, 64))
_FIRST: Final = 500
_COUNT_MAX: Final = 400_000


def run(session: Session) -> None:
    """Each size of a batch with each number of workers; so many tasks send, and so many work."""
    for promise in session.promises:
        with session.running("queue", promise) as running:
            for batch, workers in _CASES_QUICK if session.is_quick else _CASES:
                counts = dict.fromkeys(running, _FIRST)
                measure = _measure(counts, batch, workers, session.choose(2, 1))
                case = f"batch {batch:03d} workers {workers:02d}"
                plural = "" if workers == 1 else "s"
                what = f"1 KB, batches of {batch}, {workers} worker{plural}"
                session.measure(RowId("queues", promise.value, case), what, measure, running)


def _measure(counts: dict[str, int], batch: int, workers: int, seconds: int) -> Measure:
    def measure(running: Running, name: str) -> Sample:
        system = running.system.name
        count = counts[system]
        more = {"count": count, "value_bytes": _VALUE_BYTES, "batch": batch, "workers": workers}
        running.do(running.order("create_queue", name))
        (sent, worked), server_cpu = running.do(
            running.order("send", name, **more), running.order("work", name, **more)
        )
        running.do(running.order("delete_queue", name))
        rate = count / (max(sent.ended, worked.ended) - min(sent.began, worked.began))
        if count == _FIRST:
            low = max(_FIRST, batch * workers) + 1
            counts[system] = scaled(rate, seconds, low=low, high=_COUNT_MAX)
        return {
            "worked": rate,
            "work_server_us": server_cpu / count * 1e6,
            "work_client_us": (sent.cpu_seconds + worked.cpu_seconds) / count * 1e6,
        }

    return measure
