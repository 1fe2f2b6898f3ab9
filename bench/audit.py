"""Benchmark of the audit: CPU of a broker for small requests, and the rate of administration."""

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final

import trio

import tidelog
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import ServerProcess, broker_process

_TOPIC: Final = "audit-bench"
_VALUE: Final = b"." * 100
_TASKS: Final = 64
_MODES: Final = ("off", "on", "required")
_GOAL: Final = 1.03
_Run = Callable[[tidelog.Client, int], Awaitable[None]]


async def _produce(client: tidelog.Client, count: int) -> None:
    """Send requests of one record each."""
    async with client.producer(linger=0, batch_size=1) as producer:

        async def send() -> None:
            for _ in range(count // _TASKS):
                await producer.send(_TOPIC, _VALUE)

        async with trio.open_nursery() as nursery:
            for _ in range(_TASKS):
                nursery.start_soon(send)


async def _alter(client: tidelog.Client, count: int) -> None:
    for number in range(count):
        await client.admin.alter_topic(_TOPIC, set={"retention_ms": f"{number % 7 + 1}d"})


async def _measure(broker: ServerProcess, run: _Run, count: int) -> tuple[float, float]:
    """Return microseconds of the broker's CPU and of time for each request."""
    host, port = broker.address
    async with tidelog.connect(f"{host}:{port}") as client:
        if _TOPIC not in await client.admin.list_topics():
            await client.admin.create_topic(_TOPIC, durability="replicated")
        await run(client, count // 10 + _TASKS)
        cpu_before, began = broker.cpu_seconds, perf_counter()
        await run(client, count)
        spent = perf_counter() - began
        return (broker.cpu_seconds - cpu_before) / count * 1e6, spent / count * 1e6


def run(settings: Settings) -> list[Row]:
    """Measure a broker of each mode, in turn."""
    produced: dict[str, list[float]] = {mode: [] for mode in _MODES}
    altered: dict[str, list[float]] = {mode: [] for mode in _MODES}
    for number in range(settings.choose(7, 2) + 1):
        for mode in _MODES:
            directory = settings.directory / f"audit-{mode}-{number}"
            with broker_process(directory, audit=mode) as broker:
                count = _TASKS * settings.choose(300, 50)
                cpu_us, _ = trio.run(_measure, broker, _produce, count)
                _, time_us = trio.run(_measure, broker, _alter, settings.choose(200, 40))
            if number:  # The first round warms up the machine.
                produced[mode].append(cpu_us)
                altered[mode].append(time_us)
    rows: list[Row] = []
    for mode in _MODES:
        cpu = Spread.of(produced[mode]).text(",.1f")
        rows.append(Row(f"audit {mode}: CPU of a produce request of one record in us", cpu))
        time = Spread.of(altered[mode]).text(",.0f")
        rows.append(Row(f"audit {mode}: time of an alteration of a topic in us", time))
    share = ratios(produced["on"], produced["off"])
    rows.append(
        Row(
            "audit on: share of the CPU of a produce request without audit",
            share.text(".3f"),
            f"<= {_GOAL}",
            share.median <= _GOAL,
        )
    )
    return rows
