"""Benchmark of the consumer: records a second that one process reads."""

from collections.abc import Awaitable, Callable
from time import perf_counter

import trio

import tidelog
from bench.figures import Row, Settings, Spread
from bench.machine import broker_process
from bench.raw import Address, make_values

_RECORDS_GOAL = 800_000
_BATCHES_GOAL = 2_500_000
_TOPIC = "consumer"

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
        read_count += len(batch.values)  # Decodes the batch.
        if batch.next_offset == count:
            break
    assert read_count == count, "records are missing"


async def _rate(address: Address, count: int, read: _Read) -> float:
    """Return records a second since the first fetch."""
    async with tidelog.connect(_text(address)) as client:
        began = perf_counter()
        async with client.consumer(_TOPIC, auto_offset_reset="earliest") as consumer:
            await read(consumer, count)
            return count / (perf_counter() - began)


def _text(address: Address) -> str:
    host, port = address
    return f"{host}:{port}"


def run(settings: Settings) -> list[Row]:
    """Read the same topic record by record and batch by batch, in turn."""
    count = settings.choose(2_000_000, 500_000)
    with broker_process(settings.directory / "data") as server:
        trio.run(_fill, server.address, make_values(count))
        rounds = [
            (
                trio.run(_rate, server.address, count, _read_records),
                trio.run(_rate, server.address, count, _read_batches),
            )
            for _ in range(settings.choose(8, 3))
        ][1:]
    records, batches = (Spread.of(rates) for rates in zip(*rounds, strict=True))
    return [
        _row("record by record", records, _RECORDS_GOAL),
        _row("batch by batch", batches, _BATCHES_GOAL),
    ]


def _row(what: str, rate: Spread, goal: int) -> Row:
    return Row(
        f"consumer: 100-byte values, {what}: records a second",
        rate.text(),
        f">= {goal:,}",
        rate.median >= goal,
    )
