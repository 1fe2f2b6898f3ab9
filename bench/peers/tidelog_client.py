"""Load roles for tidelog, through its own client."""

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Final

import trio

import tidelog
from bench.peers.load import (
    PACE_COUNT,
    Expiries,
    Gate,
    Pace,
    Role,
    delayed_values,
    make_values,
)
from bench.peers.orders import Order
from bench.peers.promises import Promise
from bench.peers.tidelog_asyncio import ROLES as ASYNCIO_ROLES

_SEND_MANY_COUNT: Final = 100_000
_SEND_MANY_BYTES: Final = 8 << 20
_QUEUE_PARTITIONS: Final = 4
_WAIT_S: Final = 5.0
_PATIENCE_S: Final = 60.0
_RETRY_S: Final = 0.1
_Async = Callable[[tidelog.Client, Order, Gate], Awaitable[None]]


def _role(function: _Async) -> Role:
    """Return a role from a function that needs a client."""

    async def run(order: Order, gate: Gate) -> None:
        async with tidelog.connect(order.addresses) as client:
            await function(client, order, gate)

    return lambda order, gate: trio.run(run, order, gate)


def _durability(order: Order) -> str:
    return "fsync" if Promise(order.promise).is_fsync else "replicated"


async def _create(client: tidelog.Client, order: Order, gate: Gate) -> None:
    await _create_topic(client, order, order.partitions, until=gate.open() + _PATIENCE_S)
    gate.close()


async def _create_topic(
    client: tidelog.Client, order: Order, partitions: int, *, until: float
) -> None:
    while True:
        try:
            await client.admin.create_topic(
                order.name,
                partitions,
                replication_factor=Promise(order.promise).node_count,
                durability=_durability(order),
            )
        except tidelog.TidelogError:
            # Brokers of a new cluster do not know each other at once.
            if perf_counter() > until:
                raise
            await trio.sleep(_RETRY_S)
        else:
            return


async def _delete(client: tidelog.Client, order: Order, gate: Gate) -> None:
    gate.open()
    await client.admin.delete_topic(order.name)
    gate.close()


def _pieces(values: list[bytes], count: int) -> Sequence[list[bytes]]:
    return [values[first : first + count] for first in range(0, len(values), count)]


async def _hand_over(producer: tidelog.Producer, topic: str, values: list[bytes]) -> None:
    send_nowait = producer.send_nowait
    for value in values:
        try:
            send_nowait(topic, value)
        except trio.WouldBlock:
            await producer.wait_writable()
            send_nowait(topic, value)


async def _produce(client: tidelog.Client, order: Order, gate: Gate) -> None:
    values = make_values(order)
    before = await _ends(client, order)
    async with client.producer() as producer:
        await producer.send(order.name, b"")  # Connects, and obtains a producer id.
        gate.open()
        if order.way == "records":
            await _hand_over(producer, order.name, values)
            await producer.flush()
        else:
            count = min(_SEND_MANY_COUNT, max(_SEND_MANY_BYTES // order.value_bytes, 1))
            for piece in _pieces(values, count):
                await producer.send_many(order.name, piece)
        gate.close()
    found = await _ends(client, order) - before - 1
    assert found == order.count, f"{found} records are there"


async def _ends(client: tidelog.Client, order: Order) -> int:
    (topic,) = await client.admin.describe_topics([order.name])
    return sum(each.high_watermark or 0 for each in topic.partitions)


async def _consume(client: tidelog.Client, order: Order, gate: Gate) -> None:
    left = order.count + 1  # And the empty one.
    async with client.consumer(order.name, auto_offset_reset="earliest") as consumer:
        gate.open()
        if order.way == "records":
            async for record in consumer:
                assert record.value is not None
                left -= 1
                if not left:
                    break
        else:
            async for batch in consumer.batches():
                left -= len(batch.values)  # Decodes the batch.
                if left <= 0:
                    break
        gate.close()


async def _pace(client: tidelog.Client, order: Order, gate: Gate) -> None:
    async with client.producer() as producer:
        await producer.send(order.name, b"")
        pace = Pace(order, gate.open())
        while not pace.is_over:
            await _hand_over(producer, order.name, pace.take(PACE_COUNT))
            await trio.sleep(pace.delay())
        await producer.flush()
        gate.close()


async def _tail(client: tidelog.Client, order: Order, gate: Gate) -> None:
    left = order.count + 1
    async with client.consumer(order.name, auto_offset_reset="earliest") as consumer:
        gate.open()
        async for batch in consumer.batches():
            for value in batch.values:
                gate.saw(value or b"")
            left -= len(batch.values)
            if not left:
                break
        gate.close()


async def _create_queue(client: tidelog.Client, order: Order, gate: Gate) -> None:
    await _create_topic(client, order, _QUEUE_PARTITIONS, until=gate.open() + _PATIENCE_S)
    await client.admin.create_queue(order.name)
    gate.close()


async def _delete_queue(client: tidelog.Client, order: Order, gate: Gate) -> None:
    gate.open()
    await client.admin.delete_queue(order.name, with_topic=True)
    gate.close()


async def _send(client: tidelog.Client, order: Order, gate: Gate) -> None:
    queue = client.queue(order.name)
    values = iter(make_values(order))
    pieces = iter(_pieces(make_values(order), order.batch))

    async def send() -> None:
        if order.batch == 1:
            for value in values:
                await queue.send(value)
        else:
            for piece in pieces:
                await queue.send_batch(piece)

    gate.open()
    await _at_once(send, order.workers)
    gate.close()


async def _work(client: tidelog.Client, order: Order, gate: Gate) -> None:
    if order.way == "worker":
        await _work_with_worker(client.queue(order.name), order, gate)
    else:
        await _work_by_calls(client.queue(order.name), order, gate)


async def _work_with_worker(queue: tidelog.Queue, order: Order, gate: Gate) -> None:
    left = order.count

    async def handle(message: tidelog.Message) -> None:
        nonlocal left
        gate.saw(message.value or b"")
        left -= 1
        if not left:
            worker.stop()

    worker = queue.worker(handle, concurrency=order.workers)
    gate.open()
    await worker.run()  # Until all are deleted.
    gate.close()


async def _work_by_calls(queue: tidelog.Queue, order: Order, gate: Gate) -> None:
    left = order.count
    is_done = trio.Event()

    async def work() -> None:
        nonlocal left
        while left:
            messages = await queue.receive(order.batch, wait=_WAIT_S)
            for message in messages:
                gate.saw(message.value or b"")
            if len(messages) == 1:
                await messages[0].delete()
            else:
                await queue.delete_batch(messages)
            left -= len(messages)
        is_done.set()

    gate.open()
    async with trio.open_nursery() as nursery:
        for _ in range(order.workers):
            nursery.start_soon(work)
        await is_done.wait()
        gate.close()
        nursery.cancel_scope.cancel()  # Ends the remaining long polls.


async def _delay(client: tidelog.Client, order: Order, gate: Gate) -> None:
    queue, left = client.queue(order.name), order.count
    gate.open()
    while left:
        values = delayed_values(order, min(order.batch, left), order.hidden_s)
        await queue.send_batch(
            [tidelog.OutgoingMessage(value=value, delay=order.hidden_s) for value in values]
        )
        left -= len(values)
    gate.close()


async def _expire(client: tidelog.Client, order: Order, gate: Gate) -> None:
    queue, expiries, left = client.queue(order.name), Expiries(gate, order.hidden_s), order.count
    gate.open()
    while expiries.count < order.count:
        asked_at = perf_counter()
        messages = await queue.receive(order.batch, visibility_timeout=order.hidden_s)
        for message in messages:
            expiries.took(asked_at, message.value or b"")
    while left:
        messages = await queue.receive(order.batch, wait=_WAIT_S)
        for message in messages:
            expiries.came_again(message.value or b"")
        await queue.delete_batch(messages)
        left -= len(messages)
    gate.close()


async def _at_once(function: Callable[[], Awaitable[None]], count: int) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(function)


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
    "delay": _role(_delay),
    "expire": _role(_expire),
    **ASYNCIO_ROLES,
}
