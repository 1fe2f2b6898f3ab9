"""Requests of one client, one at a time: the unit of what a request costs.

Each kind prepares its messages or records first, and then makes one call after the other, so that a
measurement between the two has nothing else in it.
"""

import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import perf_counter
from typing import Final

import trio

import tidelog

VALUE: Final = b"." * 100
_QUEUE: Final = "single-queue"
_FIFO_QUEUE: Final = "single-fifo-queue"
_TOPIC: Final = "single-topic"
_COMMITTED_TOPIC: Final = "single-committed-topic"
"""Its records are few, so that none arrive while their offsets are committed."""
_OUTPUT: Final = "single-output"
_WAIT_S: Final = 5.0
_NUMBERS: Final = itertools.count(1)
_BYTES_MIN: Final = 1
"""Bytes of a fetch: the broker answers with one batch, or some small ones, whatever their size."""
_BATCH_VALUE: Final = b"." * 8_000
"""Value of a record that a fetch returns alone."""

SETTINGS: Final = {"group_initial_rebalance_delay_ms": "0", "http_listen": ""}
"""Settings of the broker: a group does not wait for further members; metrics are off."""

_LOOK_S: Final = 0.1
Run = Callable[[], Awaitable[list[float]]]
"""Makes the calls; returns the time before the first one, and after each."""
Kind = Callable[[tidelog.Client, int], AbstractAsyncContextManager[Run]]
"""Prepares a number of calls; it cleans up at the end of the block."""


async def create_all(
    client: tidelog.Client, durability: str = "replicated", *, partitions: int = 1
) -> None:
    """Create queues with some partitions, and topics with one, when the cluster has its level."""
    while True:
        features = await client.admin.describe_features()
        if features.level == features.newest_level:
            break
        await trio.sleep(_LOOK_S)
    config = {"durability": durability}
    await client.admin.create_queue(_QUEUE, partitions=partitions, topic_config=config)
    await client.admin.create_queue(
        _FIFO_QUEUE, partitions=partitions, fifo=True, topic_config=config
    )
    for name in (_TOPIC, _COMMITTED_TOPIC, _OUTPUT):
        await client.admin.create_topic(name, partitions=1, durability=durability)


@asynccontextmanager
async def _sending(client: tidelog.Client, count: int) -> AsyncGenerator[Run]:
    queue = client.queue(_QUEUE)

    async def run() -> list[float]:
        times = [perf_counter()]
        for _ in range(count):
            await queue.send(VALUE)
            times.append(perf_counter())
        return times

    yield run
    await queue.delete_batch(await _received(queue, count))


@asynccontextmanager
async def _sending_in_order(client: tidelog.Client, count: int) -> AsyncGenerator[Run]:
    queue = client.queue(_FIFO_QUEUE)
    await queue.send(VALUE, group=b"group")  # Obtains a producer id.

    async def run() -> list[float]:
        times = [perf_counter()]
        for _ in range(count):
            await queue.send(VALUE, group=b"group")
            times.append(perf_counter())
        return times

    yield run
    await queue.purge()


async def _received(queue: tidelog.Queue, count: int) -> list[tidelog.Message]:
    """Receive messages one by one."""
    messages: list[tidelog.Message] = []
    while len(messages) < count:
        messages += await queue.receive(1, wait=_WAIT_S)
    return messages


@asynccontextmanager
async def _receiving(client: tidelog.Client, count: int) -> AsyncGenerator[Run]:
    queue = client.queue(_QUEUE)
    for _ in range(count):
        await queue.send(VALUE)
    messages: list[tidelog.Message] = []

    async def run() -> list[float]:
        times = [perf_counter()]
        for _ in range(count):
            messages.extend(await queue.receive(1, wait=_WAIT_S))
            times.append(perf_counter())
        return times

    yield run
    assert len(messages) == count, "a receive was empty"
    await queue.delete_batch(messages)


@asynccontextmanager
async def _deleting(client: tidelog.Client, count: int) -> AsyncGenerator[Run]:
    queue = client.queue(_QUEUE)
    for _ in range(count):
        await queue.send(VALUE)
    messages = await _received(queue, count)

    async def run() -> list[float]:
        times = [perf_counter()]
        for message in messages:
            await message.delete()
            times.append(perf_counter())
        return times

    yield run


@asynccontextmanager
async def _working(client: tidelog.Client, count: int) -> AsyncGenerator[Run]:
    """Process a backlog with one worker; its messages were sent one by one."""
    queue = client.queue(_QUEUE)
    for _ in range(count):
        await queue.send(VALUE)

    async def run() -> list[float]:
        times = [perf_counter()]

        async def handle(message: tidelog.Message) -> None:
            assert message.value == VALUE
            times.append(perf_counter())
            if len(times) > count:
                worker.stop()

        worker = queue.worker(handle, concurrency=1)
        await worker.run()  # Until all are deleted.
        return times

    yield run


@asynccontextmanager
async def _flowing(client: tidelog.Client, count: int) -> AsyncGenerator[Run]:
    """Send a message and wait until a worker, which waits for it, has it."""
    queue = client.queue(_QUEUE)
    arrived = trio.Event()

    async def handle(message: tidelog.Message) -> None:
        assert message.value == VALUE
        arrived.set()

    async def run_once() -> None:
        nonlocal arrived
        arrived = trio.Event()
        await queue.send(VALUE)
        await arrived.wait()

    async def run() -> list[float]:
        times = [perf_counter()]
        for _ in range(count):
            await run_once()
            times.append(perf_counter())
        return times

    worker = queue.worker(handle, concurrency=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run)
        await run_once()
        yield run
        worker.stop()


@asynccontextmanager
async def _producing(client: tidelog.Client, count: int) -> AsyncGenerator[Run]:
    async with client.producer() as producer:
        await producer.send(_TOPIC, VALUE)  # Connects, and obtains a producer id.

        async def run() -> list[float]:
            times = [perf_counter()]
            for _ in range(count):
                await producer.send(_TOPIC, VALUE)
                times.append(perf_counter())
            return times

        yield run


@asynccontextmanager
async def _fetching(client: tidelog.Client, count: int) -> AsyncGenerator[Run]:
    """Consume batches of one record, a fetch for each."""
    async with client.consumer(
        _TOPIC,
        auto_offset_reset="latest",
        max_partition_fetch_bytes=_BYTES_MIN,
        prefetch_bytes=_BYTES_MIN,
    ) as consumer:
        (end,) = (await consumer.end_offsets()).values()
        async with client.producer() as producer:
            for _ in range(count + 1):
                await producer.send(_TOPIC, _BATCH_VALUE)
        consumer.seek(_TOPIC, 0, end)
        records = aiter(consumer)
        await anext(records)

        async def run() -> list[float]:
            times = [perf_counter()]
            for _ in range(count):
                await anext(records)
                times.append(perf_counter())
            return times

        yield run


@asynccontextmanager
async def _tailing(client: tidelog.Client, count: int) -> AsyncGenerator[Run]:
    """Produce a record and consume it, by a consumer that waits for it."""
    async with (
        client.producer() as producer,
        client.consumer(_TOPIC, auto_offset_reset="latest") as consumer,
    ):
        await consumer.end_offsets()
        records = aiter(consumer)

        async def run() -> list[float]:
            times = [perf_counter()]
            for _ in range(count):
                await producer.send(_TOPIC, VALUE)
                await anext(records)
                times.append(perf_counter())
            return times

        await producer.send(_TOPIC, VALUE)
        await anext(records)
        yield run


@asynccontextmanager
async def _committing(client: tidelog.Client, count: int) -> AsyncGenerator[Run]:
    """Commit offsets of a consumer group."""
    async with client.producer() as producer:
        for _ in range(count):
            await producer.send(_COMMITTED_TOPIC, VALUE)
    async with client.consumer(
        _COMMITTED_TOPIC,
        group_id=f"single-{next(_NUMBERS)}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        await anext(aiter(consumer))

        async def run() -> list[float]:
            times = [perf_counter()]
            for number in range(count):
                await consumer.commit({(_COMMITTED_TOPIC, 0): number})
                times.append(perf_counter())
            return times

        yield run


@asynccontextmanager
async def _staging(client: tidelog.Client, count: int) -> AsyncGenerator[Run]:
    """Stage one record and commit it, again and again, under one name."""

    async def run() -> list[float]:
        times = [perf_counter()]
        for _ in range(count):
            transaction = client.transaction("single", next(_NUMBERS))
            async with transaction.task() as task:
                await task.send(_OUTPUT, VALUE)
            await transaction.commit([task.result])
            times.append(perf_counter())
        return times

    yield run


KINDS: Final[dict[str, Kind]] = {
    "send": _sending,
    "fifo": _sending_in_order,
    "receive": _receiving,
    "delete": _deleting,
    "work": _working,
    "flow": _flowing,
    "produce": _producing,
    "fetch": _fetching,
    "tail": _tailing,
    "commit": _committing,
    "staged": _staging,
}
WHAT: Final = {
    "send": "a message is sent",
    "fifo": "a message is sent to a FIFO queue",
    "receive": "a message is received",
    "delete": "a message is deleted",
    "work": "a message of a backlog is received and deleted by queue.work with one worker",
    "flow": "a message is sent, and received and deleted by a waiting queue.work",
    "produce": "a record is produced",
    "fetch": "a record is consumed from a backlog, a fetch for each",
    "tail": "a record is produced and consumed by a waiting consumer",
    "commit": "an offset of a group is committed",
    "staged": "a record is staged and committed in a transaction of its own",
}
MESSAGE: Final = ("send", "receive", "delete")
"""The kinds that make up a whole message by three calls."""
