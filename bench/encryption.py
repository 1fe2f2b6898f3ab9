"""Benchmark of encryption at rest: produce and consume of an encrypted topic beside a plain one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

import trio

import tidelog
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import broker_process
from tidelog.broker.encryption.master_keys import master_key_line

_VALUE: Final = bytes(range(200)) * 5
_GOAL: Final = 1.2
_KINDS: Final = ("off", "on")
_Costs = dict[str, float]
"""Seconds of wall time, by task."""


async def _cost(client: tidelog.Client, kind: str, count: int) -> _Costs:
    topic = f"encryption-{kind}"
    await client.admin.create_topic(topic, config={"encryption": kind, "durability": "replicated"})
    found: _Costs = {}
    async with client.producer() as producer:
        await producer.send(topic, _VALUE)  # Connects; an encrypted topic has its key then.
        began = perf_counter()
        for _ in range(count):
            try:
                producer.send_nowait(topic, _VALUE)
            except tidelog.BufferFullError:
                await producer.wait_writable()
                producer.send_nowait(topic, _VALUE)
        await producer.flush()
        found["produce"] = perf_counter() - began
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        began = perf_counter()
        async for _ in consumer.records(await consumer.end_offsets()):
            pass
        found["consume"] = perf_counter() - began
    await client.admin.delete_topic(topic)
    return found


def run(settings: Settings) -> list[Row]:
    """Measure both kinds in turn, against one broker."""
    key_file = Path(f"{settings.directory}-master.key")
    key_file.touch(mode=0o600)
    key_file.write_text(f"{master_key_line(bytes(range(32)))}\n", encoding="ascii")
    count = settings.choose(200_000, 20_000)
    measured: dict[str, list[_Costs]] = {kind: [] for kind in _KINDS}
    try:
        with broker_process(settings.directory, master_key_file=str(key_file)) as broker:
            host, port = broker.address

            async def main(kind: str) -> _Costs:
                async with tidelog.connect(f"{host}:{port}") as client:
                    return await _cost(client, kind, count)

            for _ in range(settings.choose(5, 3) + 1):
                for kind in _KINDS:
                    measured[kind].append(trio.run(main, kind))
    finally:
        key_file.unlink()
    return [row for task in ("produce", "consume") for row in _rows(task, measured, count)]


def _rows(task: str, measured: Mapping[str, Sequence[_Costs]], count: int) -> list[Row]:
    times = {kind: [each[task] for each in costs[1:]] for kind, costs in measured.items()}
    rates = [count * len(_VALUE) / seconds / 1e6 for seconds in times["off"]]
    ratio = ratios(times["on"], times["off"])
    return [
        Row(f"encryption: {task} of a plain topic in MB/s", Spread.of(rates).text(",.0f")),
        Row(
            f"encryption: {task} of an encrypted topic: time beside a plain one",
            ratio.text(".2f"),
            f"<= {_GOAL}",
            ratio.median <= _GOAL,
        ),
    ]
