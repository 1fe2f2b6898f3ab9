"""Benchmark of processors: exactly once against a plain loop that processes at least once."""

from time import perf_counter
from typing import Final

import trio

import tidelog
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import broker_process
from bench.raw import Address, make_values

_GOAL: Final = 0.7
_INPUT: Final = "input"
_OUTPUT: Final = "output"
_PARTITIONS: Final = 6
_INTERVAL_S: Final = 0.1


async def _fill(address: Address, values: list[bytes]) -> None:
    async with tidelog.connect(_text(address)) as client:
        for topic in (_INPUT, _OUTPUT):
            await client.admin.create_topic(topic, _PARTITIONS)
        async with client.producer() as producer:
            await producer.send_many(_INPUT, values)


async def _at_least_once(address: Address, count: int, name: str) -> float:
    """Return records a second of a loop that flushes, then commits, at intervals."""
    done = 0
    began = committed_at = 0.0
    async with (
        tidelog.connect(_text(address)) as client,
        client.producer() as producer,
        client.consumer(
            _INPUT, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
    ):
        async for record in consumer:
            began = began or perf_counter()
            while True:
                try:
                    producer.send_nowait(_OUTPUT, record.value, key=record.key)
                    break
                except trio.WouldBlock:
                    await producer.wait_writable()
            done += 1
            if done == count or (not done % 100 and perf_counter() > committed_at + _INTERVAL_S):
                await producer.flush()
                await consumer.commit()
                committed_at = perf_counter()
            if done == count:
                break
    return count / (perf_counter() - began)


async def _exactly_once(address: Address, count: int, name: str) -> float:
    """Return records a second of a processor."""
    began = 0.0

    def copied(record: tidelog.Record) -> tidelog.ProducerRecord:
        nonlocal began
        began = began or perf_counter()
        return tidelog.ProducerRecord(_OUTPUT, record.value, record.key)

    async with tidelog.connect(_text(address)) as client:
        present = await _count(client)
        await client.process(_INPUT, copied, name=name, commit_interval=_INTERVAL_S, until_end=True)
        rate = count / (perf_counter() - began)
        made = await _count(client) - present
    assert made == count, f"{made} records were made of {count}"
    return rate


async def _count(client: tidelog.Client) -> int:
    """Return the number of output records in the log."""
    async with client.consumer(_OUTPUT, auto_offset_reset="earliest") as consumer:
        return sum((await consumer.end_offsets()).values())


def _text(address: Address) -> str:
    host, port = address
    return f"{host}:{port}"


def run(settings: Settings) -> list[Row]:
    """Copy the same topic with both loops, in turn."""
    count = settings.choose(600_000, 200_000)
    rates: list[tuple[float, float]] = []
    with broker_process(settings.directory / "data", http_listen="") as server:
        trio.run(_fill, server.address, make_values(count))
        for number in range(settings.choose(6, 3)):
            plain = trio.run(_at_least_once, server.address, count, f"plain-{number}")
            once = trio.run(_exactly_once, server.address, count, f"once-{number}")
            rates.append((plain, once))
    plain_rates, once_rates = zip(*rates[1:], strict=True)
    ratio = ratios(once_rates, plain_rates)
    what = f"100-byte values, {_PARTITIONS} partitions, commits every {_INTERVAL_S:g} s"
    return [
        Row(
            f"at least once, a plain loop: {what}: records a second", Spread.of(plain_rates).text()
        ),
        Row(
            f"exactly once, client.process: {what}: records a second", Spread.of(once_rates).text()
        ),
        Row(
            "exactly once compared with at least once",
            ratio.text(".2f"),
            f">= {_GOAL}",
            ratio.median >= _GOAL,
        ),
    ]
