"""Benchmark of transactions beside a produce with fsync: latency, CPU, syncs, and many names."""

import shutil
import signal
import subprocess
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

import trio

import tidelog
from bench.figures import Row, Settings, Spread
from bench.machine import ServerProcess, broker_process
from bench.raw import Address, make_values

_TOPIC: Final = "orders"
_RECORDS: Final = 10
_RATIO_GOAL: Final = 5.0
_CPU_GOAL_MS: Final = 1.5
_SYNCS_GOAL: Final = 3.2
"""Syncs of a transaction, with a share of the first begin and of the deletions every 5 s."""
_RATE_GOAL: Final = 500
_NAMES: Final = (1, 16, 64)
_SYNC_CALLS: Final = ("fsync", "fdatasync")


class _Alone(NamedTuple):
    """One transaction after the other, each beside a produce; times in seconds."""

    produces: list[float]
    commits: list[float]


async def _commit(client: tidelog.Client, name: str, number: int, *, values: list[bytes]) -> None:
    transaction = client.transaction(name, number)
    async with transaction.task() as task:
        await task.send_many(_TOPIC, values, partition=0)
    await transaction.commit([task.result])


async def _alone(address: Address, count: int, *, name: str, is_paired: bool) -> _Alone:
    """Commit transactions of one name, with a produce before each if they are `is_paired`."""
    values = make_values(_RECORDS)
    found = _Alone([], [])
    async with tidelog.connect(_text(address)) as client, client.producer() as producer:
        for number in range(-_WARMUP, count):
            began = perf_counter()
            if is_paired:
                await producer.send_many(_TOPIC, values, partition=0)
            sent = perf_counter()
            await _commit(client, name, number + _WARMUP, values=values)
            if number >= 0:
                found.produces.append(sent - began)
                found.commits.append(perf_counter() - sent)
    return found


async def _produce(address: Address, count: int) -> None:
    """Send batches of as many records, one after the other."""
    values = make_values(_RECORDS)
    async with tidelog.connect(_text(address)) as client, client.producer() as producer:
        for _ in range(count):
            await producer.send_many(_TOPIC, values, partition=0)


async def _many(address: Address, names: int, count: int) -> float:
    """Return commits a second of many names that commit one transaction after the other."""
    values = make_values(_RECORDS)

    async def work(name: str) -> None:
        for number in range(count):
            await _commit(client, name, number, values=values)

    async with tidelog.connect(_text(address)) as client:
        await _commit(client, "first", int(perf_counter() * 1000), values=values)
        began = perf_counter()
        async with trio.open_nursery() as nursery:
            for name in range(names):
                nursery.start_soon(work, f"{names}-{name}-{began}")
        return names * count / (perf_counter() - began)


async def _create(address: Address) -> None:
    async with tidelog.connect(_text(address)) as client:
        await client.admin.create_topic(_TOPIC, 1, durability="fsync")


def _counted(server: ServerProcess, directory: Path, count: int) -> tuple[float, float] | None:
    """Return syncs and renames of a transaction; `None` if calls cannot be traced here."""
    program = shutil.which("strace")
    if program is None:
        return None
    output = directory / "strace"
    calls = "trace=fsync,fdatasync,rename,renameat,renameat2"
    arguments = [program, "-f", "-c", "-e", calls, "-o", str(output), "-p", str(server.pid)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        if "attached" not in tracer.stderr.readline():
            return None
        trio.run(lambda: _alone(server.address, count, name="traced", is_paired=False))
        tracer.send_signal(signal.SIGINT)
    lines = [line.split() for line in output.read_text(encoding="utf-8").splitlines()]
    found = {line[-1]: int(line[3]) for line in lines if line[-1:] and line[0][0].isdigit()}
    done = count + _WARMUP
    renames = sum(number for name, number in found.items() if name.startswith("rename"))
    return sum(found.get(name, 0) for name in _SYNC_CALLS) / done, renames / done


_WARMUP: Final = 5
_EACH_MIN: Final = 40
"""Transactions of each name; the first one has to begin."""


def _text(address: Address) -> str:
    host, port = address
    return f"{host}:{port}"


def run(settings: Settings) -> list[Row]:
    """Commit alone beside a produce, then count system calls, then commit with many names."""
    count = settings.choose(500, 100)
    rates: dict[int, list[float]] = {names: [] for names in _NAMES}
    with broker_process(settings.directory / "data", http_listen="") as server:
        trio.run(_create, server.address)
        paired = trio.run(lambda: _alone(server.address, count, name="paired", is_paired=True))
        before = server.cpu_seconds
        trio.run(_produce, server.address, count)
        produced = server.cpu_seconds
        trio.run(lambda: _alone(server.address, count, name="alone", is_paired=False))
        cpu_ms = (
            (produced - before) * 1000 / count,
            (server.cpu_seconds - produced) * 1000 / (count + _WARMUP),
        )
        for _ in range(settings.choose(5, 1)):
            for names in _NAMES:
                count_each = max(settings.choose(3_000, 600) // names, _EACH_MIN)
                rates[names].append(trio.run(_many, server.address, names, count_each))
        counted = _counted(server, settings.directory, settings.choose(100, 50))
    return _rows(paired, cpu_ms, counted, rates=rates)


def _rows(
    paired: _Alone,
    cpu_ms: tuple[float, float],
    counted: tuple[float, float] | None,
    *,
    rates: dict[int, list[float]],
) -> list[Row]:
    produce_ms, commit_ms = (median(each) * 1000 for each in paired)
    ratio = commit_ms / produce_ms
    what = f"{_RECORDS} records of 100 B, fsync"
    rows = [
        Row(f"transactions: {what}: p50 of a produce, ms", f"{produce_ms:.2f}"),
        Row(f"transactions: {what}: p50 of a transaction, ms", f"{commit_ms:.2f}"),
        Row(
            "transactions: a transaction compared with a produce",
            f"{ratio:.1f}",
            f"<= {_RATIO_GOAL:g}",
            ratio <= _RATIO_GOAL,
        ),
        Row("transactions: CPU of the broker for a produce, ms", f"{cpu_ms[0]:.2f}"),
        Row(
            "transactions: CPU of the broker for a transaction, ms",
            f"{cpu_ms[1]:.2f}",
            f"<= {_CPU_GOAL_MS:g}",
            cpu_ms[1] <= _CPU_GOAL_MS,
        ),
    ]
    if counted is not None:
        syncs, renames = counted
        rows.append(
            Row(
                "transactions: syncs and renames for one, counted by strace",
                f"{syncs:.2f} and {renames:.2f}",
                "<= 3 and 0",
                syncs <= _SYNCS_GOAL,
            )
        )
    for names, measured in rates.items():
        rate = Spread.of(measured)
        goal = names == max(rates)
        rows.append(
            Row(
                f"transactions: commits a second with {names} names",
                rate.text(),
                f">= {_RATE_GOAL}" if goal else "",
                rate.median >= _RATE_GOAL if goal else None,
            )
        )
    return rows
