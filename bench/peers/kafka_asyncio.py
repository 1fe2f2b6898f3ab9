"""Load roles for Kafka, through aiokafka."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final

from bench.peers.libraries import library
from bench.peers.load import Gate, Role, make_values
from bench.peers.orders import Order

_WARM_UP: Final = 20


def _role(function: Callable[[Order, Gate], Awaitable[None]]) -> Role:
    async def run(order: Order, gate: Gate) -> None:
        await function(order, gate)

    return lambda order, gate: asyncio.run(run(order, gate))


def _producer(order: Order, **more: Any) -> Any:  # noqa: ANN401
    return library("aiokafka").AIOKafkaProducer(
        bootstrap_servers=order.addresses, acks="all", enable_idempotence=True, **more
    )


async def _produce(order: Order, gate: Gate) -> None:
    values = make_values(order)
    topic = order.name
    # The default of 16 KiB a batch would slow it down.
    async with _producer(order, max_batch_size=1_000_000) as producer:
        await producer.send_and_wait(topic, b"")  # Connects.
        send = producer.send
        gate.open()
        for value in values:
            await send(topic, value)
        await producer.flush()
        gate.close()


async def _consume(order: Order, gate: Gate) -> None:
    left = order.count + 1  # And the empty one.
    async with library("aiokafka").AIOKafkaConsumer(
        order.name,
        bootstrap_servers=order.addresses,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        gate.open()
        async for record in consumer:
            assert record.value is not None
            left -= 1
            if not left:
                break
        gate.close()


async def _send(order: Order, gate: Gate) -> None:
    values = make_values(order)
    async with _producer(order, linger_ms=0) as producer:
        for _ in range(_WARM_UP):
            await producer.send_and_wait(order.name, b"")
        gate.open()
        for value in values:
            began = perf_counter()
            await producer.send_and_wait(order.name, value)
            gate.arrived.append(perf_counter() - began)
        gate.close()


ROLES: Final[dict[str, Role]] = {
    "asyncio_produce": _role(_produce),
    "asyncio_consume": _role(_consume),
    "asyncio_send": _role(_send),
}
