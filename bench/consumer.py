"""Benchmark of the consumer: records a second that one process reads."""

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter, process_time
from typing import NamedTuple

import trio

import tidelog
from bench.figures import Row, Settings, Spread
from bench.machine import broker_process
from bench.raw import Address, make_varied_values

_RECORDS_GOAL = 800_000
_BATCHES_GOAL = 2_500_000
_TOPIC = "consumer"


class _Cost(NamedTuple):
    """Figures of one run."""

    rate: float
    """Records a second."""
    cpu_ns: float
    """Nanoseconds of processor time of the client process, for each record."""


_Read = Callable[[tidelog.Consumer, int], Awaitable[None]]


async def _fill(address: Address, values: list[bytes]) -> None:
    async with tidelog.connect(_text(address)) as client:
        await client.admin.create_topic(_TOPIC)
        async with client.producer() as producer:
            await producer.send_many(_TOPIC, values)


async def _read_records(consumer: tidelog.Consumer, count: int) -> None:
    async for record in consumer:
        assert record.value is not None
        if record.offset == count - 1:
            return


async def _read_batches(consumer: tidelog.Consumer, count: int) -> None:
    read_count = 0
    async for batch in consumer.batches():
        read_count += len(list(batch.values))  # Makes each value.
        if batch.next_offset == count:
            break
    assert read_count == count, "records are missing"


async def _cost(address: Address, count: int, read: _Read) -> _Cost:
    """Return figures since the first fetch."""
    async with tidelog.connect(_text(address)) as client:
        began, cpu_s = perf_counter(), process_time()
        async with client.consumer(_TOPIC, auto_offset_reset="earliest") as consumer:
            await read(consumer, count)
            elapsed, cpu_s = perf_counter() - began, process_time() - cpu_s
            return _Cost(count / elapsed, cpu_s / count * 1e9)


def _text(address: Address) -> str:
    host, port = address
    return f"{host}:{port}"


def run(settings: Settings) -> list[Row]:
    """Read the same topic record by record and batch by batch, in turn."""
    count = settings.choose(2_000_000, 500_000)
    with broker_process(settings.directory / "data") as server:
        trio.run(_fill, server.address, make_varied_values(count))
        rounds = [
            (
                trio.run(_cost, server.address, count, _read_records),
                trio.run(_cost, server.address, count, _read_batches),
            )
            for _ in range(settings.choose(8, 3))
        ][1:]
    records, batches = zip(*rounds, strict=True)
    return [
        *_rows("record by record", records, _RECORDS_GOAL),
        *_rows("batch by batch", batches, _BATCHES_GOAL),
    ]


def _rows(what: str, costs: Sequence[_Cost], goal: int) -> list[Row]:
    rate = Spread.of(cost.rate for cost in costs)
    spent = Spread.of(cost.cpu_ns for cost in costs)
    return [
        Row(
            f"consumer: values of 60 to 140 bytes, {what}: records a second",
            rate.text(),
            f">= {goal:,}",
            rate.median >= goal,
        ),
        Row(f"consumer: {what}: client CPU for a record, ns", spent.text()),
    ]
