"""Benchmark of idle queues: memory of the broker, and CPU with long polls."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from time import perf_counter, sleep  # noqa: TID251  (the benchmark measures an idle process)
from typing import Final

import trio

import tidelog
from bench.figures import Row, Settings
from bench.machine import ROOT, ServerProcess, broker_process

_CPU_GOAL_PERCENT: Final = 2.0
_MEMORY_GOAL_BYTES: Final = 10_000
_CREATING: Final = 20
"""Queues that are created at the same time."""
_SETTLE_S: Final = 15
_POLL_S: Final = 590.0
_PATIENCE_S: Final = 300.0
"""Seconds; a shared disk creates directories slowly."""


def _name(number: int) -> str:
    return f"idle-{number:05d}"


async def _create(addresses: str, numbers: range, topic: str | None = None) -> None:
    """Create queues on `topic`, or each on a new topic."""
    waiting = iter(numbers)

    async def create() -> None:
        for number in waiting:
            await client.admin.create_queue(_name(number), topic=topic)

    connected = tidelog.connect(addresses, request_timeout=_PATIENCE_S)
    async with connected as client, trio.open_nursery() as nursery:
        for _ in range(_CREATING):
            nursery.start_soon(create)


async def _use(addresses: str, numbers: range) -> None:
    """Send one message to each queue, receive it and delete it."""
    waiting = iter(numbers)

    async def use() -> None:
        for number in waiting:
            queue = client.queue(_name(number))
            await queue.send(b"once")
            (message,) = await queue.receive(wait=20)
            await message.delete()

    async with tidelog.connect(addresses) as client, trio.open_nursery() as nursery:
        for _ in range(_CREATING):
            nursery.start_soon(use)


async def _poll(addresses: str, count: int) -> None:
    """Poll each queue in its own task until killed."""
    async with tidelog.connect(addresses) as client, trio.open_nursery() as nursery:
        for number in range(count):
            queue = client.queue(_name(number))
            await queue.receive(wait=0)
            nursery.start_soon(partial(queue.receive, wait=_POLL_S))
        sys.stdout.write("polling\n")
        sys.stdout.flush()


@contextmanager
def _polls(addresses: str, count: int) -> Generator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.idle_queues", json.dumps([addresses, count])],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "a long poll failed"
        yield
    finally:
        process.kill()
        process.wait()


def _idle_percent(server: ServerProcess, seconds: float) -> float:
    sleep(_SETTLE_S)
    cpu_before = server.cpu_seconds
    began = perf_counter()
    sleep(seconds)
    return (server.cpu_seconds - cpu_before) / (perf_counter() - began) * 100


def run(settings: Settings) -> list[Row]:
    """Create queues, use some of them, and poll those."""
    count, poll_count = settings.choose(10_000, 500), settings.choose(1_000, 100)
    seconds = settings.choose(30, 5)
    with broker_process(settings.directory / "data") as server:
        host, port = server.address
        addresses = f"{host}:{port}"
        trio.run(_create, addresses, range(1))
        before = server.resident_bytes
        began = perf_counter()
        trio.run(_create, addresses, range(1, count))
        created_in = perf_counter() - began
        created = (server.resident_bytes - before) / (count - 1)
        before = server.resident_bytes
        trio.run(_create, addresses, range(count, count + count // 10), _name(0))
        added = (server.resident_bytes - before) / (count // 10)
        alone = _idle_percent(server, seconds)
        before = server.resident_bytes
        trio.run(_use, addresses, range(poll_count))
        with _polls(addresses, poll_count):
            crowded = _idle_percent(server, seconds)
            used = (server.resident_bytes - before) / poll_count
    what = f"idle queues: {count:,} on one broker"
    return [
        Row(f"{what}: seconds until all are created", f"{created_in:.0f}"),
        _memory_row(f"{what}: bytes of memory for each, with a topic of its own", created),
        _memory_row(f"{what}: bytes for each of {count // 10:,} more on one topic", added),
        Row(
            f"{what}: more bytes for each of {poll_count:,} that was used and has a long poll",
            f"{used:,.0f}",
        ),
        _cpu_row(f"{what}: CPU", alone),
        _cpu_row(f"{what}: CPU with a long poll at each of {poll_count:,}", crowded),
    ]


def _memory_row(what: str, size: float) -> Row:
    return Row(what, f"{size:,.0f}", f"< {_MEMORY_GOAL_BYTES:,}", size < _MEMORY_GOAL_BYTES)


def _cpu_row(what: str, percent: float) -> Row:
    return Row(
        what, f"{percent:.2f} %", f"< {_CPU_GOAL_PERCENT:.0f} %", percent < _CPU_GOAL_PERCENT
    )


if __name__ == "__main__":
    trio.run(_poll, *json.loads(sys.argv[1]))
