"""Load roles for tidelog, through its client for asyncio."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final

from bench.peers.load import Gate, Role, make_values
from bench.peers.orders import Order
from tidelog import aio as tidelog

_WARM_UP: Final = 20
_Async = Callable[[tidelog.Client, Order, Gate], Awaitable[None]]


def _role(function: _Async) -> Role:
    """Return a role from a function that needs a client."""

    async def run(order: Order, gate: Gate) -> None:
        async with tidelog.connect(order.addresses) as client:
            await function(client, order, gate)

    return lambda order, gate: asyncio.run(run(order, gate))


async def _produce(client: tidelog.Client, order: Order, gate: Gate) -> None:
    values = make_values(order)
    topic = order.name
    async with client.producer() as producer:
        await producer.send(topic, b"")  # Connects, and obtains a producer id.
        send_nowait = producer.send_nowait
        gate.open()
        for value in values:
            try:
                send_nowait(topic, value)
            except tidelog.BufferFullError:
                await producer.wait_writable()
                send_nowait(topic, value)
        await producer.flush()
        gate.close()


async def _consume(client: tidelog.Client, order: Order, gate: Gate) -> None:
    left = order.count + 1  # And the empty one.
    async with client.consumer(order.name, auto_offset_reset="earliest") as consumer:
        gate.open()
        async for record in consumer:
            assert record.value is not None
            left -= 1
            if not left:
                break
        gate.close()


async def _send(client: tidelog.Client, order: Order, gate: Gate) -> None:
    values = make_values(order)
    async with client.producer() as producer:
        for _ in range(_WARM_UP):
            await producer.send(order.name, b"")
        gate.open()
        for value in values:
            began = perf_counter()
            await producer.send(order.name, value)
            gate.arrived.append(perf_counter() - began)
        gate.close()


ROLES: Final[dict[str, Role]] = {
    "asyncio_produce": _role(_produce),
    "asyncio_consume": _role(_consume),
    "asyncio_send": _role(_send),
}
