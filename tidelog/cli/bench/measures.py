"""Measurements of `tidelog bench`, on temporary topics and a temporary queue."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, cast, final

import click
import trio

from tidelog.cli.bench.figures import Figures, Latencies, Plan, Rate
from tidelog.client.client import Client
from tidelog.client.config import AcksSetting, Compression
from tidelog.client.producer.producer import Producer
from tidelog.client.queue.queue import Queue
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import TidelogError

_TASKS: Final = 16
"""Concurrent calls of a figure: the client has work while it waits for acknowledgements."""
_LATENCY_WARM_UP: Final = 20
"""Records whose latency does not count."""
_CLEAN_UP_S: Final = 5.0
_EMPTY_WAIT_S: Final = 1.0
"""Seconds without a message after which a queue is empty."""

OnPhase = Callable[[str], None]
"""Callback at the start of each figure, with its name."""


async def measure(client: Client, plan: Plan, on_phase: OnPhase) -> Figures:
    """Return all figures; create what they need, and delete it at the end, also when cancelled."""
    name = f"tidelog-bench-{os.urandom(4).hex()}"
    names = _Names(name, f"{name}-latency", f"{name}-queue")
    async with _temporary(client, plan, names):
        on_phase("produce")
        produced = await _produce(client, plan, names.topic)
        on_phase("consume")
        consumed = await _consume(client, plan, names.topic)
        on_phase("produce to consume, one record at a time")
        latencies = await _latencies(client, plan, names.latency_topic)
        on_phase("queue: send")
        queue = client.queue(names.queue)
        sent = await _send(queue, plan)
        on_phase("queue: receive and delete")
        received = await _receive(queue, plan)
    return Figures(
        produce=produced, consume=consumed, latencies=latencies, send=sent, receive=received
    )


@final
class _Names:
    """Names of the temporary topics and of the queue."""

    def __init__(self, topic: str, latency_topic: str, queue: str) -> None:
        """Store the names."""
        self.topic = topic
        self.latency_topic = latency_topic
        self.queue = queue


@asynccontextmanager
async def _temporary(client: Client, plan: Plan, names: _Names) -> AsyncGenerator[None, None]:
    """Keep the topics and the queue while the block runs."""
    admin = client.admin
    removals: dict[str, Callable[[], Awaitable[object]]] = {}
    try:
        for topic, partitions in ((names.topic, plan.partitions), (names.latency_topic, 1)):
            removals[f"topic delete {topic}"] = partial(admin.delete_topic, topic)
            await admin.create_topic(topic, partitions)
        removals[f"queue delete {names.queue} --with-topic"] = partial(
            admin.delete_queue, names.queue, with_topic=True
        )
        await admin.create_queue(names.queue, partitions=plan.partitions)
        yield
    finally:
        with trio.CancelScope(shield=True):
            for command, remove in removals.items():
                await _remove(command, remove)


async def _remove(command: str, remove: Callable[[], Awaitable[object]]) -> None:
    """Delete something temporary; print the command if that fails."""
    try:
        with trio.fail_after(_CLEAN_UP_S):
            await remove()
    except (TidelogError, trio.TooSlowError, trio.ClosedResourceError) as error:
        reason = str(error) or "no answer in time"
        click.echo(f"cannot clean up: {reason}; do so with `tidelog {command}`", err=True)


@final
class _Meter:
    """Counts after a warm-up, until the time or the count of the plan is reached."""

    def __init__(self, plan: Plan) -> None:
        """Start the warm-up now."""
        self._plan = plan
        self._created_at = trio.current_time()
        self._began_at = self._created_at + plan.warm_up_s
        self._last_at = self._created_at
        self._count = self._total = 0

    def is_over(self) -> bool:
        """Return whether the figure is complete."""
        limit = self._plan.count_max
        is_full = limit is not None and self._count >= limit
        return is_full or trio.current_time() >= self._began_at + self._plan.seconds

    def add(self, count: int) -> None:
        """Count records or messages that are done now."""
        now = trio.current_time()
        self._total += count
        self._last_at = now
        if now >= self._began_at:
            self._count += count

    def rate(self) -> Rate:
        """Return the result: without the warm-up, unless all was done within it."""
        count, began_at = self._count, self._began_at
        if not count:
            count, began_at = self._total, self._created_at
        return Rate(count=count, seconds=self._last_at - began_at, size_bytes=self._plan.size_bytes)


def _values(plan: Plan) -> list[bytes]:
    """Return a batch of different values; they compress to about a half."""
    letters = os.urandom((plan.size_bytes * plan.batch + 1) // 2).hex().encode()
    size = plan.size_bytes
    return [letters[at * size : (at + 1) * size] for at in range(plan.batch)]


async def _repeat(tasks: int, step: Callable[[], Awaitable[int]], meter: _Meter) -> Rate:
    """Run a step in some tasks, again and again, until the figure is complete."""

    async def run() -> None:
        while not meter.is_over():
            meter.add(await step())

    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(run)
    return meter.rate()


def _producer(client: Client, plan: Plan) -> Producer:
    acks = plan.acks if plan.acks == "all" else int(plan.acks)
    return client.producer(
        acks=cast("AcksSetting", acks), compression_type=cast("Compression", plan.compression)
    )


async def _produce(client: Client, plan: Plan, topic: str) -> Rate:
    values = _values(plan)
    async with _producer(client, plan) as producer:

        async def send() -> int:
            await producer.send_many(topic, values)
            return len(values)

        return await _repeat(_TASKS, send, _Meter(plan))


async def _consume(client: Client, plan: Plan, topic: str) -> Rate:
    """Read what `_produce` wrote, again from the beginning until the figure is complete."""
    found = await client.admin.list_offsets(topic, "latest")
    until = {
        TopicPartition(topic, number): each.offset
        for number, each in found.items()
        if each.offset is not None
    }
    meter = _Meter(plan)
    while not meter.is_over() and any(until.values()):
        async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
            async for batch in consumer.batches(until):
                meter.add(len(batch.values))
                if meter.is_over():
                    break
    return meter.rate()


async def _latencies(client: Client, plan: Plan, topic: str) -> Latencies:
    """Send a record when the consumer has the last one; measure from the send to the consumer."""
    value = _values(plan)[0]
    times: list[float] = []
    async with (
        _producer(client, plan) as producer,
        client.consumer(topic, auto_offset_reset="earliest") as consumer,
    ):
        records = aiter(consumer)
        ends_at = trio.current_time() + plan.warm_up_s + plan.seconds
        count_max = None if plan.count_max is None else plan.count_max + _LATENCY_WARM_UP
        while trio.current_time() < ends_at and (count_max is None or len(times) < count_max):
            began_at = trio.current_time()
            producer.send_nowait(topic, value)
            await anext(records)
            times.append(trio.current_time() - began_at)
    return Latencies(sorted_s=sorted(times[_LATENCY_WARM_UP:]))


async def _send(queue: Queue, plan: Plan) -> Rate:
    values = _values(plan)

    async def send() -> int:
        return len(await queue.send_batch(values))

    return await _repeat(_TASKS, send, _Meter(plan))


async def _receive(queue: Queue, plan: Plan) -> Rate:
    """Receive and delete what `_send` sent, until the queue is empty or the time is over."""
    meter = _Meter(plan)
    is_empty = False

    async def run() -> None:
        nonlocal is_empty
        while not is_empty and not meter.is_over():
            messages = await queue.receive(plan.batch, wait=_EMPTY_WAIT_S)
            if messages:
                await queue.delete_batch(messages)
                meter.add(len(messages))
            else:
                is_empty = True

    async with trio.open_nursery() as nursery:
        for _ in range(_TASKS):
            nursery.start_soon(run)
    return meter.rate()
