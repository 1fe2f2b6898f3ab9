"""Load roles for beanstalkd, through greenstalk."""

from time import perf_counter
from typing import Any, Final

from bench.peers.libraries import library
from bench.peers.load import (
    Expiries,
    Gate,
    Role,
    Shared,
    delayed_values,
    in_threads,
    make_values,
)
from bench.peers.orders import Order

_greenstalk = library("greenstalk")

_WAIT_S: Final = 1
_LEASE_S: Final = 60
"""Time to run of jobs without an ordered one: the client's default."""


def _connect(order: Order) -> Any:  # noqa: ANN401
    host, _, port = order.addresses.partition(":")
    return _greenstalk.Client((host, int(port)), encoding=None, use=order.name, watch=order.name)


def _nothing(order: Order, gate: Gate) -> None:
    """Do nothing, because the server creates and deletes tubes itself."""
    del order
    gate.open()
    gate.close()


def _send(order: Order, gate: Gate) -> None:
    values = make_values(order)
    shared = Shared(order)
    clients = [_connect(order) for _ in range(order.workers)]

    def send(number: int) -> None:
        put = clients[number].put
        while (taken := shared.take()) is not None:
            for value in values[taken]:
                put(value, ttr=order.hidden_s or _LEASE_S)

    in_threads(send, order.workers, gate)


def _work(order: Order, gate: Gate) -> None:
    shared = Shared(order)
    clients = [_connect(order) for _ in range(order.workers)]

    def work(number: int) -> None:
        client = clients[number]
        while shared.left:
            try:
                job = client.reserve(timeout=_WAIT_S)
            except _greenstalk.TimedOutError:
                continue
            gate.saw(job.body)
            client.delete(job)
            shared.done(1)

    in_threads(work, order.workers, gate, shared=shared)


def _delay(order: Order, gate: Gate) -> None:
    client = _connect(order)
    gate.open()
    for _ in range(order.count):
        (value,) = delayed_values(order, 1, order.hidden_s)
        client.put(value, delay=order.hidden_s)
    gate.close()


def _expire(order: Order, gate: Gate) -> None:
    """Reserve all jobs, and again after their expiry, on the same connection.

    In the last second of a lease the server rejects a wait of the connection that holds it: it
    answers DEADLINE_SOON at once, and the client asks again. Another connection could wait, but
    the server loses the timer of a silent connection with leases.
    """
    client, expiries, left = _connect(order), Expiries(gate, order.hidden_s), order.count
    gate.open()
    while expiries.count < order.count:
        asked_at = perf_counter()
        expiries.took(asked_at, client.reserve(timeout=_WAIT_S).body)
    while left:
        try:
            job = client.reserve(timeout=_WAIT_S)
        except (_greenstalk.DeadlineSoonError, _greenstalk.TimedOutError):
            continue
        expiries.came_again(job.body)
        client.delete(job)
        left -= 1
    gate.close()


ROLES: Final[dict[str, Role]] = {
    "create_queue": _nothing,
    "delete_queue": _nothing,
    "send": _send,
    "work": _work,
    "delay": _delay,
    "expire": _expire,
}
