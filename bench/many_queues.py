"""Benchmark of very many queues on one broker: creation, memory, idle cost, use and restart."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep  # noqa: TID251  (the benchmark measures an idle process)
from typing import Final

import trio

import tidelog
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import ROOT, ServerProcess, broker_process

_CREATED_GOAL_S: Final = 300.0
_MEMORY_GOAL_GIB: Final = 1.5
_IDLE_GOAL_PERCENT: Final = 2.0
_CLEAN_GOAL_S: Final = 20.0
_KILLED_GOAL_S: Final = 60.0
_RATE_GOAL: Final = 0.95
_AT_ONCE: Final = 1_000
"""Queues of one call of the client."""
_WORKERS: Final = 32
"""Tasks that use the active queues, each a queue at a time."""
_BATCH: Final = 10
_CHECKED: Final = 20
"""Queues that must have their message after the kill."""
_ROUNDS: Final = 5
_SETTLE_S: Final = 10
_PATIENCE_S: Final = 600.0
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class _Start:
    """A start of the broker with all queues."""

    seconds: float
    cpu_seconds: float
    resident_bytes: int
    peak_bytes: int
    early_percent: float
    """CPU in the first seconds after the start."""


def _name(number: int) -> str:
    return f"many-{number:06d}"


def _addresses(server: ServerProcess) -> str:
    host, port = server.address
    return f"{host}:{port}"


async def _create(addresses: str, count: int) -> None:
    async with tidelog.connect(addresses, request_timeout=_PATIENCE_S) as client:
        for first in range(0, count, _AT_ONCE):
            names = [_name(number) for number in range(first, min(first + _AT_ONCE, count))]
            results = await client.admin.create_queues(names)
            failed = [each for each in results if each.error is not None]
            assert not failed, failed[0]


@dataclass(frozen=True, slots=True)
class _Active:
    """Queues of one broker that are used, and the rates of each round."""

    addresses: str
    numbers: Sequence[int]
    rates: list[float] = field(default_factory=list[float])


async def _use(places: Sequence[_Active]) -> None:
    """Pass a batch through each queue, some rounds at each broker in turn; the first opens them."""
    async with AsyncExitStack() as stack:
        queues: list[list[tidelog.Queue]] = []
        for place in places:
            connected = tidelog.connect(place.addresses, request_timeout=_PATIENCE_S)
            client = await stack.enter_async_context(connected)
            queues.append([client.queue(_name(number)) for number in place.numbers])
        for number in range(_ROUNDS + 1):
            for place, used in zip(places, queues, strict=True):
                waiting, began = iter(used), perf_counter()
                async with trio.open_nursery() as nursery:
                    for _ in range(_WORKERS):
                        nursery.start_soon(_pass_batches, waiting)
                if number:
                    place.rates.append(len(used) * _BATCH / (perf_counter() - began))


async def _pass_batches(waiting: Iterator[tidelog.Queue]) -> None:
    for queue in waiting:
        async with trio.open_nursery() as nursery:
            for number in range(_BATCH):
                nursery.start_soon(queue.send, b"%d" % number)
        left = _BATCH
        while left:
            messages = await queue.receive(max_messages=_BATCH, wait=20)
            left -= len(messages)
            await queue.delete_batch(messages)


async def _answers(addresses: str, count: int) -> None:
    """Check that a started broker has all queues, and serves one of them."""
    async with tidelog.connect(addresses, request_timeout=_PATIENCE_S) as client:
        names = await client.admin.list_queues()
        assert len(names) == count, f"{len(names)} queues are left"
        queue = client.queue(names[1])  # It is not among the used ones.
        await queue.send(b"after the start")
        (message,) = await queue.receive(wait=20)
        await message.delete()


async def _send_to(addresses: str, numbers: Sequence[int]) -> None:
    """Send a message to each queue."""
    waiting = iter(numbers)

    async def send() -> None:
        for number in waiting:
            await client.queue(_name(number)).send(b"kept")

    connected = tidelog.connect(addresses, request_timeout=_PATIENCE_S)
    async with connected as client, trio.open_nursery() as nursery:
        for _ in range(_WORKERS):
            nursery.start_soon(send)


async def _check_kept(addresses: str, numbers: Sequence[int]) -> None:
    """Check that some of the queues have the message that was sent before the kill."""
    async with tidelog.connect(addresses, request_timeout=_PATIENCE_S) as client:
        for number in numbers[1 : 1 + _CHECKED]:
            (message,) = await client.queue(_name(number)).receive(wait=20)
            assert message.value == b"kept", message.value


def _started(directory: Path, count: int) -> tuple[ServerProcess, _Start]:
    began = perf_counter()
    with ExitStack() as ending:
        server = ending.enter_context(broker_process(directory))
        trio.run(_answers, _addresses(server), count)
        seconds, cpu_seconds = perf_counter() - began, server.cpu_seconds
        memory = server.resident_bytes, server.resident_bytes_peak
        start = _Start(seconds, cpu_seconds, *memory, _cpu_percent(server, _SETTLE_S))
        ending.pop_all()
    return server, start


def _idle_percent(server: ServerProcess, seconds: float) -> float:
    sleep(_SETTLE_S)
    return _cpu_percent(server, seconds)


def _cpu_percent(server: ServerProcess, seconds: float) -> float:
    cpu_before, began = server.cpu_seconds, perf_counter()
    sleep(seconds)
    return (server.cpu_seconds - cpu_before) / (perf_counter() - began) * 100


def _list_s(server: ServerProcess, *options: str) -> float:
    """Return the seconds of `tidelog queue list`."""
    command = [sys.executable, "-m", "tidelog", "queue", "list", "--broker", _addresses(server)]
    began = perf_counter()
    subprocess.run([*command, *options], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return perf_counter() - began


def run(settings: Settings) -> list[Row]:
    """Create queues, use a part of them, and restart the broker cleanly and after a kill."""
    count, active = settings.choose(100_000, 2_000), settings.choose(1_000, 100)
    data, what = settings.directory / "data", f"many queues: {count:,}"
    used = range(0, count, count // active)
    with broker_process(settings.directory / "few") as few:
        trio.run(_create, _addresses(few), active)
        with broker_process(data) as server:
            empty = server.resident_bytes
            cpu_before, began = server.cpu_seconds, perf_counter()
            trio.run(_create, _addresses(server), count)
            created_s = perf_counter() - began
            created_ms = (server.cpu_seconds - cpu_before) / count * 1_000
            created_bytes = server.resident_bytes
            idle = _idle_percent(server, settings.choose(20, 5))
            among = _Active(_addresses(server), used)
            alone = _Active(_addresses(few), range(active))
            trio.run(_use, [among, alone])
            files, used_bytes = server.open_files, server.resident_bytes
            listed_s, named_s = _list_s(server), _list_s(server, "--names")
            began = perf_counter()
            server.stop()
            stopped_s = perf_counter() - began
    server, clean = _started(data, count)
    with server:
        trio.run(_send_to, _addresses(server), used)
        server.stop(signal.SIGKILL)
    server, killed = _started(data, count)
    with server:
        trio.run(_check_kept, _addresses(server), used)
    rate = ratios(among.rates, alone.rates)
    each = (created_bytes - empty) / count
    created_cpu = f"{created_ms:.2f} ms of CPU each"
    return [
        _row(f"{what} created", created_s, "s", goal=_CREATED_GOAL_S, more=created_cpu),
        Row(f"{what}: memory for each", f"{each:,.0f} bytes"),
        _row(f"{what}: memory of the broker", used_bytes / _GIB, "GiB", goal=_MEMORY_GOAL_GIB),
        Row(f"{what}: open files", f"{files:,}"),
        _row(f"{what}: CPU while idle", idle, "%", goal=_IDLE_GOAL_PERCENT),
        Row(
            f"{what}: messages a second through {active:,} of them",
            Spread.of(among.rates).text(),
        ),
        Row(
            f"{what}: the same, of the rate of a broker that has only these",
            rate.text(".2f"),
            f">= {_RATE_GOAL}",
            rate.median >= _RATE_GOAL,
        ),
        Row(f"{what}: `queue list`", f"{listed_s:.1f} s, names alone {named_s:.1f} s"),
        Row(f"{what}: clean stop", f"{stopped_s:.1f} s"),
        *_start_rows(f"{what}: start after it", clean, _CLEAN_GOAL_S),
        *_start_rows(f"{what}: start after SIGKILL", killed, _KILLED_GOAL_S),
    ]  # fmt: skip


def _start_rows(what: str, start: _Start, goal_s: float) -> list[Row]:
    cost = f"{start.cpu_seconds:.1f} s of CPU, then {start.early_percent:.1f} % for {_SETTLE_S} s"
    peak = f"at most {start.peak_bytes / _GIB:.2f} GiB"
    memory = start.resident_bytes / _GIB
    return [
        _row(what, start.seconds, "s", goal=goal_s, more=cost),
        _row(f"{what}, memory", memory, "GiB", goal=_MEMORY_GOAL_GIB, more=peak),
    ]


def _row(what: str, value: float, unit: str, *, goal: float, more: str = "") -> Row:
    measured = f"{value:.2f} {unit}" + (f", {more}" if more else "")
    return Row(what, measured, f"< {goal:g} {unit}", value < goal)
