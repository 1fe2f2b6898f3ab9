"""Benchmark of the client for asyncio: its CPU beside that of the client for trio."""

import asyncio
from collections.abc import Awaitable, Callable
from time import process_time
from typing import Any, Final

import trio
import uvloop

import tidelog
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import broker_process
from tidelog import aio

_TOPIC: Final = "faces"
_QUEUE: Final = "faces-queue"
_VALUE: Final = b"." * 100
_TASKS: Final = 64
_GOAL: Final = 1.3
_WHAT: Final = {
    "one": "one send after the other",
    "tasks": f"send, {_TASKS} tasks",
    "nowait": "send_nowait and flush",
    "read": "async for record",
    "queue": "a message sent, received, deleted, one after the other",
}
_WITH_GOAL: Final = ("tasks", "read")
_Costs = dict[str, float]
"""Microseconds of CPU of the client process, for each record or message."""
_Send = Callable[[Any, int], Awaitable[object]]
"""Sends records of many tasks at a time."""


async def _in_trio(producer: tidelog.Producer, count: int) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(_TASKS):
            nursery.start_soon(_send, producer, count // _TASKS)


async def _in_asyncio(producer: tidelog.Producer, count: int) -> None:
    await asyncio.gather(*[_send(producer, count // _TASKS) for _ in range(_TASKS)])


async def _send(producer: tidelog.Producer, count: int) -> None:
    for _ in range(count):
        await producer.send(_TOPIC, _VALUE)


async def _nowait(producer: tidelog.Producer, count: int) -> None:
    for _ in range(count):
        try:
            producer.send_nowait(_TOPIC, _VALUE)
        except tidelog.BufferFullError:
            await producer.wait_writable()
            producer.send_nowait(_TOPIC, _VALUE)
    await producer.flush()


async def _read(consumer: tidelog.Consumer) -> None:
    async for _ in consumer.records(await consumer.end_offsets()):
        pass


async def _work(queue: tidelog.Queue, count: int) -> None:
    for _ in range(count):
        await queue.send(_VALUE)
        (message,) = await queue.receive(1, wait=5)
        await message.delete()


async def _cost(work: Awaitable[object], count: int) -> float:
    began = process_time()
    await work
    return (process_time() - began) / count * 1e6


async def _costs(connecting: Any, in_tasks: _Send, settings: Settings) -> _Costs:  # noqa: ANN401
    found: _Costs = {}
    async with connecting as client:
        await client.admin.create_topic(_TOPIC, durability="replicated")
        await client.admin.create_queue(_QUEUE)
        async with client.producer() as producer:
            await producer.send(_TOPIC, _VALUE)  # Connects, and obtains a producer id.
            count = settings.choose(500, 100)
            found["one"] = await _cost(_send(producer, count), count)
            count = _TASKS * settings.choose(300, 50)
            found["tasks"] = await _cost(in_tasks(producer, count), count)
            count = settings.choose(1_000_000, 100_000)
            found["nowait"] = await _cost(_nowait(producer, count), count)
        async with client.consumer(_TOPIC, auto_offset_reset="earliest") as consumer:
            found["read"] = await _cost(_read(consumer), count)
        count = settings.choose(150, 40)
        found["queue"] = await _cost(_work(client.queue(_QUEUE), count), count)
        await client.admin.delete_queue(_QUEUE)
        await client.admin.delete_topic(_QUEUE)
        await client.admin.delete_topic(_TOPIC)
    return found


def run(settings: Settings) -> list[Row]:
    """Measure each call in trio, on asyncio and on uvloop, in turn."""
    with broker_process(settings.directory) as broker:
        host, port = broker.address
        address = f"{host}:{port}"

        async def main() -> _Costs:
            return await _costs(tidelog.connect(address), _in_trio, settings)

        async def main_of_asyncio() -> _Costs:
            return await _costs(aio.connect(address), _in_asyncio, settings)

        measured: dict[str, list[_Costs]] = {"trio": [], "asyncio": [], "uvloop": []}
        for _ in range(settings.choose(5, 2) + 1):
            measured["trio"].append(trio.run(main))
            measured["asyncio"].append(asyncio.run(main_of_asyncio()))
            measured["uvloop"].append(uvloop.run(main_of_asyncio()))
    rows: list[Row] = []
    for name, what in _WHAT.items():
        figures = {face: [each[name] for each in costs[1:]] for face, costs in measured.items()}
        rows.append(
            Row(
                f"faces: {what}, trio: client CPU in us",
                Spread.of(figures["trio"]).text(",.1f"),
            )
        )
        for face in ("asyncio", "uvloop"):
            ratio = ratios(figures[face], figures["trio"])
            has_goal = name in _WITH_GOAL
            rows.append(
                Row(
                    f"faces: {what}, {face}: share of the client for trio",
                    ratio.text(".2f"),
                    f"<= {_GOAL}" if has_goal else "",
                    ratio.median <= _GOAL if has_goal else None,
                )
            )
    return rows
