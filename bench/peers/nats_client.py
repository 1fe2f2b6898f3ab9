"""Load roles for NATS JetStream, through nats-py."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final

from bench.peers.libraries import library
from bench.peers.load import PACE_COUNT, Expiries, Gate, Pace, Role, Shared, make_values
from bench.peers.orders import Order
from bench.peers.promises import Promise

_nats = library("nats")
_errors = library("nats.errors")
_api = library("nats.js.api")

_PENDING_MAX: Final = 4_000
_WAIT_S: Final = 0.5
_STALL_S: Final = 60.0
_BUFFER_BYTES: Final = 8 << 20
_UNLIMITED: Final = -1
_DURABLE: Final = "workers"

_Async = Callable[[Any, Order, Gate], Awaitable[None]]


def _role(function: _Async) -> Role:
    """Return a role from a function that needs a JetStream connection."""

    async def run(order: Order, gate: Gate) -> None:
        connection = await _nats.connect(
            [f"nats://{address}" for address in order.addresses.split(",")],
            pending_size=_BUFFER_BYTES,
            allow_reconnect=False,
        )
        stream = connection.jetstream(timeout=_STALL_S, publish_async_max_pending=_PENDING_MAX)
        await function(stream, order, gate)
        await connection.close()

    return lambda order, gate: asyncio.run(run(order, gate))


def _how_kept(order: Order) -> dict[str, Any]:
    replicas = Promise(order.promise).node_count
    return {"storage": _api.StorageType.FILE, "num_replicas": replicas}


def _streams(order: Order) -> list[str]:
    return [f"{order.name}-{number}" for number in range(order.partitions)]


async def _create(jet: Any, order: Order, gate: Gate) -> None:  # noqa: ANN401
    gate.open()
    for name in _streams(order):
        await jet.add_stream(name=name, subjects=[name], **_how_kept(order))
    gate.close()


async def _delete(jet: Any, order: Order, gate: Gate) -> None:  # noqa: ANN401
    gate.open()
    for name in _streams(order):
        await jet.delete_stream(name)
    gate.close()


async def _produce(jet: Any, order: Order, gate: Gate) -> None:  # noqa: ANN401
    values, streams = make_values(order), _streams(order)
    count = len(streams)
    gate.open()
    for number, value in enumerate(values):
        await jet.publish_async(streams[number % count], value)
    await jet.publish_async_completed()
    gate.close()
    found = 0
    for name in streams:
        found += (await jet.stream_info(name)).state.messages
    assert found == order.count, f"{found} records are there"


async def _subscriptions(jet: Any, order: Order, callback: Any) -> list[Any]:  # noqa: ANN401
    return [
        await jet.subscribe(
            name,
            stream=name,
            cb=callback,
            ordered_consumer=True,
            pending_msgs_limit=_UNLIMITED,
            pending_bytes_limit=_UNLIMITED,
        )
        for name in _streams(order)
    ]


async def _read(jet: Any, order: Order, gate: Gate, *, see: Callable[[bytes], object]) -> None:  # noqa: ANN401
    left = order.count
    is_done = asyncio.Event()

    async def take(message: Any) -> None:  # noqa: ANN401
        nonlocal left
        see(message.data)
        left -= 1
        if not left:
            is_done.set()

    gate.open()
    await _subscriptions(jet, order, take)
    await is_done.wait()
    gate.close()


async def _consume(jet: Any, order: Order, gate: Gate) -> None:  # noqa: ANN401
    await _read(jet, order, gate, see=len)


async def _tail(jet: Any, order: Order, gate: Gate) -> None:  # noqa: ANN401
    await _read(jet, order, gate, see=gate.saw)


async def _pace(jet: Any, order: Order, gate: Gate) -> None:  # noqa: ANN401
    (stream,) = _streams(order)
    pace = Pace(order, gate.open())
    while not pace.is_over:
        for value in pace.take(PACE_COUNT):
            await jet.publish_async(stream, value)
        await asyncio.sleep(pace.delay())
    await jet.publish_async_completed()
    gate.close()


async def _create_queue(jet: Any, order: Order, gate: Gate) -> None:  # noqa: ANN401
    gate.open()
    await jet.add_stream(
        name=order.name,
        subjects=[order.name],
        retention=_api.RetentionPolicy.WORK_QUEUE,
        **_how_kept(order),
    )
    more = {"ack_wait": order.hidden_s} if order.hidden_s else {}
    config = _api.ConsumerConfig(max_ack_pending=100_000, **more)
    await jet.pull_subscribe(order.name, durable=_DURABLE, config=config)
    gate.close()


async def _delete_queue(jet: Any, order: Order, gate: Gate) -> None:  # noqa: ANN401
    gate.open()
    await jet.delete_stream(order.name)
    gate.close()


async def _send(jet: Any, order: Order, gate: Gate) -> None:  # noqa: ANN401
    values, shared = make_values(order), Shared(order)

    async def send() -> None:
        while (taken := shared.take()) is not None:
            sent = [await jet.publish_async(order.name, value) for value in values[taken]]
            await asyncio.gather(*sent)

    gate.open()
    await asyncio.gather(*(send() for _ in range(order.workers)))
    gate.close()


async def _work(jet: Any, order: Order, gate: Gate) -> None:  # noqa: ANN401
    shared = Shared(order)
    subscriptions = [
        await jet.pull_subscribe_bind(durable=_DURABLE, stream=order.name)
        for _ in range(order.workers)
    ]
    is_done = asyncio.Event()

    async def work(subscription: Any) -> None:  # noqa: ANN401
        while shared.left:
            messages = await _fetch(subscription, order.batch)
            await asyncio.gather(*(each.ack_sync(_STALL_S) for each in messages))
            shared.done(len(messages))
        is_done.set()

    gate.open()
    tasks = [asyncio.create_task(work(each)) for each in subscriptions]
    await is_done.wait()
    gate.close()
    await asyncio.gather(*tasks)


async def _fetch(subscription: Any, count: int) -> list[Any]:  # noqa: ANN401
    """Return the available messages; none after a short wait."""
    try:
        return list(await subscription.fetch(count, timeout=_WAIT_S))
    except (_errors.TimeoutError, TimeoutError):
        return []


async def _expire(jet: Any, order: Order, gate: Gate) -> None:  # noqa: ANN401
    subscription = await jet.pull_subscribe_bind(durable=_DURABLE, stream=order.name)
    expiries, left = Expiries(gate, order.hidden_s), order.count
    gate.open()
    while expiries.count < order.count:
        asked_at = perf_counter()
        for message in await _fetch(subscription, min(order.batch, order.count - expiries.count)):
            expiries.took(asked_at, message.data)
    while left:
        messages = await _fetch(subscription, order.batch)
        for message in messages:
            expiries.came_again(message.data)
        await asyncio.gather(*(each.ack_sync(_STALL_S) for each in messages))
        left -= len(messages)
    gate.close()


ROLES: Final[dict[str, Role]] = {
    "create": _role(_create),
    "delete": _role(_delete),
    "produce": _role(_produce),
    "consume": _role(_consume),
    "pace": _role(_pace),
    "tail": _role(_tail),
    "create_queue": _role(_create_queue),
    "delete_queue": _role(_delete_queue),
    "send": _role(_send),
    "work": _role(_work),
    "expire": _role(_expire),
}
