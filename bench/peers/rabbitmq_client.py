"""Load roles for RabbitMQ: streams through rstream, quorum queues through aio-pika."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from bench.peers.libraries import library
from bench.peers.load import PACE_COUNT, Gate, Pace, Role, Shared, make_values
from bench.peers.orders import Order
from bench.peers.promises import Promise

_rstream = library("rstream")
_pika = library("aio_pika")

_USER: Final = "guest"
_FRAME_COUNT: Final = 1_000
_FRAME_BYTES: Final = 512 << 10
_UNCONFIRMED_MAX: Final = 20_000
_CREDIT: Final = 50

_Async = Callable[[Order, Gate], Awaitable[None]]


def _role(function: _Async) -> Role:
    async def run(order: Order, gate: Gate) -> None:
        await function(order, gate)

    return lambda order, gate: asyncio.run(run(order, gate))


def _place(order: Order) -> dict[str, Any]:
    """Return the address of streams."""
    host, _, port = order.addresses.split(",")[1].partition(":")
    return {"host": host, "port": int(port), "username": _USER, "password": _USER}


def _streams(order: Order) -> list[str]:
    return [f"{order.name}-{number}" for number in range(order.partitions)]


async def _create(order: Order, gate: Gate) -> None:
    replicas = Promise(order.promise).node_count
    async with _rstream.Producer(**_place(order)) as producer:
        gate.open()
        for name in _streams(order):
            await producer.create_stream(name, arguments={"initial-cluster-size": str(replicas)})
        gate.close()


async def _delete(order: Order, gate: Gate) -> None:
    async with _rstream.Producer(**_place(order)) as producer:
        gate.open()
        for name in _streams(order):
            await producer.delete_stream(name)
        gate.close()


class _Confirmed:
    """Counter of confirmations, which limits the unconfirmed messages of a producer."""

    def __init__(self, producer: Any) -> None:  # noqa: ANN401
        self._producer = producer
        self._sent = self._confirmed = 0
        self._progress = asyncio.Event()

    async def _confirm(self, status: Any) -> None:  # noqa: ANN401
        assert status.is_confirmed, "the broker refused a message"
        self._confirmed += 1
        self._progress.set()

    async def send(self, stream: str, values: list[bytes]) -> None:
        await self._producer.send_batch(stream, values, on_publish_confirm=self._confirm)
        self._sent += len(values)
        await self.wait(_UNCONFIRMED_MAX)

    async def wait(self, unconfirmed: int) -> None:
        while self._sent - self._confirmed > unconfirmed:
            self._progress.clear()
            await self._progress.wait()


async def _produce(order: Order, gate: Gate) -> None:
    values, streams = make_values(order), _streams(order)
    size = min(_FRAME_COUNT, max(_FRAME_BYTES // order.value_bytes, 1))
    async with _rstream.Producer(**_place(order)) as producer:
        confirmed = _Confirmed(producer)
        gate.open()
        for number, first in enumerate(range(0, len(values), size)):
            await confirmed.send(streams[number % len(streams)], values[first : first + size])
        await confirmed.wait(0)
        gate.close()


async def _read(order: Order, gate: Gate, see: Callable[[bytes], object]) -> None:
    left = order.count
    consumer = _rstream.Consumer(**_place(order))
    await consumer.start()
    is_done = asyncio.Event()

    def take(message: bytes, _context: object) -> None:
        nonlocal left
        see(message)
        left -= 1
        if not left:
            is_done.set()

    gate.open()
    for name in _streams(order):
        await consumer.subscribe(name, take, initial_credit=_CREDIT)
    await is_done.wait()
    gate.close()
    await consumer.close()


async def _consume(order: Order, gate: Gate) -> None:
    await _read(order, gate, len)


async def _tail(order: Order, gate: Gate) -> None:
    await _read(order, gate, gate.saw)


async def _pace(order: Order, gate: Gate) -> None:
    (stream,) = _streams(order)
    async with _rstream.Producer(**_place(order)) as producer:
        confirmed = _Confirmed(producer)
        pace = Pace(order, gate.open())
        while not pace.is_over:
            values = pace.take(PACE_COUNT)
            if values:
                await confirmed.send(stream, values)
            await asyncio.sleep(pace.delay())
        await confirmed.wait(0)
        gate.close()


async def _connect(order: Order) -> Any:  # noqa: ANN401
    address = order.addresses.split(",")[0]
    return await _pika.connect(f"amqp://{_USER}:{_USER}@{address}/")


async def _declare(channel: Any, order: Order) -> Any:  # noqa: ANN401
    members = Promise(order.promise).node_count
    arguments = {"x-queue-type": "quorum", "x-quorum-initial-group-size": members}
    return await channel.declare_queue(order.name, durable=True, arguments=arguments)


async def _create_queue(order: Order, gate: Gate) -> None:
    connection = await _connect(order)
    gate.open()
    await _declare(await connection.channel(), order)
    gate.close()
    await connection.close()


async def _delete_queue(order: Order, gate: Gate) -> None:
    connection = await _connect(order)
    channel = await connection.channel()
    queue = await _declare(channel, order)
    left = queue.declaration_result.message_count
    assert not left, f"{left} messages are left"
    gate.open()
    await channel.queue_delete(order.name)
    gate.close()
    await connection.close()


async def _send(order: Order, gate: Gate) -> None:
    values, shared = make_values(order), Shared(order)
    connection = await _connect(order)
    channels = [await connection.channel(publisher_confirms=True) for _ in range(order.workers)]

    async def send(channel: Any) -> None:  # noqa: ANN401
        publish = channel.default_exchange.publish
        mode = _pika.DeliveryMode.PERSISTENT
        while (taken := shared.take()) is not None:
            messages = (_pika.Message(value, delivery_mode=mode) for value in values[taken])
            await asyncio.gather(*(publish(message, order.name) for message in messages))

    gate.open()
    await asyncio.gather(*(send(channel) for channel in channels))
    gate.close()
    await connection.close()


async def _work(order: Order, gate: Gate) -> None:
    shared = Shared(order)
    connection = await _connect(order)
    channels = [await connection.channel() for _ in range(order.workers)]
    is_done = asyncio.Event()

    async def work(channel: Any) -> None:  # noqa: ANN401
        await channel.set_qos(prefetch_count=order.batch)
        arrived: asyncio.Queue[Any] = asyncio.Queue()
        queue = await _declare(channel, order)
        await queue.consume(arrived.put)
        while not is_done.is_set():
            batch = [await arrived.get()]
            while len(batch) < order.batch and not arrived.empty():
                batch.append(arrived.get_nowait())
            # One acknowledgement for all earlier messages of this channel.
            await batch[-1].ack(multiple=True)
            shared.done(len(batch))
            if not shared.left:
                is_done.set()

    gate.open()
    tasks = [asyncio.create_task(work(channel)) for channel in channels]
    await is_done.wait()
    for channel in channels:
        await _declare(channel, order)  # The server answers after all earlier work.
    gate.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await connection.close()


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
}
