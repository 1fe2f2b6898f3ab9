"""Workload that measures how late delayed messages and expired leases become visible."""

from typing import Final

from bench.peers.cases import Case, Workload
from bench.peers.promises import Promise
from bench.peers.results import Sample
from bench.peers.running import Running

_HIDDEN_S: Final = 2
"""Delay and visibility timeout in whole seconds, which beanstalkd needs."""
_COUNT: Final = 500
"""Number of messages, small enough to receive all before the first lease expires."""
_BATCH: Final = 10
_WORKERS: Final = 8
_DELAYS: Final = ("beanstalkd", "elasticmq")
"""Systems that can delay a message."""
_LEASES: Final = ("nats", "beanstalkd", "elasticmq")
"""Systems with a configurable visibility timeout that redeliver expired messages themselves."""


def _cases(promise: Promise, is_quick: bool) -> list[Case]:
    """Return the cases of delayed and of expired messages, with the systems that support them."""
    del is_quick
    if promise is not Promise.MEMORY_ONE:
        return []
    delayed, expired = f"delayed by {_HIDDEN_S} s", f"received, and not deleted for {_HIDDEN_S} s"
    return [
        Case("delayed", delayed, _measure_delayed, _HIDDEN_S + 1.0, _DELAYS),
        Case("expired", expired, _measure_expired, _HIDDEN_S + 1.5, _LEASES),
    ]


_MORE: Final = {"count": _COUNT, "value_bytes": 100, "batch": _BATCH, "workers": _WORKERS}


def _measure_delayed(running: Running, name: str) -> Sample:
    running.errand("create_queue", name)
    (_, worked), _ = running.do(
        running.order("delay", name, hidden_s=_HIDDEN_S, **_MORE),
        running.order("work", name, **_MORE),
    )
    running.errand("delete_queue", name)
    return worked.latencies_ms


def _measure_expired(running: Running, name: str) -> Sample:
    """Receive all messages, and again after their expiry."""
    running.errand("create_queue", name, hidden_s=_HIDDEN_S)
    running.do(running.order("send", name, hidden_s=_HIDDEN_S, **_MORE))
    (expired,), _ = running.do(running.order("expire", name, hidden_s=_HIDDEN_S, **_MORE))
    running.errand("delete_queue", name)
    return expired.latencies_ms


LATE: Final = Workload("late", "queue", _cases)
