"""Benchmark of TLS: produce beside plain TCP on the same broker, and handshakes beside others."""

import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from statistics import quantiles
from typing import Final

import trio

import tidelog
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import LOAD_CORE, ServerProcess, broker_process
from tidelog.certificates.directories import write_cluster
from tidelog.wire.env.real.certificate_files import TlsFiles, client_context
from tidelog.wire.env.real.real_env import RealClock

_TOPIC: Final = "tls"
_RECORD: Final = b"." * 1_000
_CPU_GOAL: Final = 1.5
_P99_GOAL: Final = 2.0
_HANDSHAKES_GOAL: Final = 500
"""Handshakes of a second, on the core of the broker."""


@dataclass(frozen=True, slots=True)
class _Costs:
    """Figures of one round over one kind of connection."""

    cpu_us: float
    """CPU of the broker for each record of a stream of records."""
    p99_ms: float
    """Latency of single records."""
    handshakes_per_s: float = 0.0


async def _latency_ms(producer: tidelog.Producer, count: int) -> float:
    """Return the 99th percentile of single records."""
    measured: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        await producer.send(_TOPIC, _RECORD)
        measured.append((time.perf_counter() - began) * 1e3)
    return quantiles(measured, n=100)[98]


async def _costs(server: ServerProcess, settings: Settings, ca: str | None) -> _Costs:
    host, port = server.address
    async with (
        tidelog.connect(f"{host}:{port}", tls_ca=ca) as client,
        client.producer(linger=0.005) as streaming,
        client.producer() as single,
    ):
        await single.send(_TOPIC, _RECORD)
        await streaming.send(_TOPIC, _RECORD)
        count = settings.choose(100_000, 20_000)
        began = server.cpu_seconds
        for _ in range(count):
            try:
                streaming.send_nowait(_TOPIC, _RECORD)
            except tidelog.BufferFullError:
                await streaming.wait_writable()
                streaming.send_nowait(_TOPIC, _RECORD)
        await streaming.flush()
        cpu_us = (server.cpu_seconds - began) / count * 1e6
        return _Costs(cpu_us, await _latency_ms(single, settings.choose(2_000, 300)))


def _shake_hands(address: tuple[str, int], ca: str, count: "Synchronized[int]") -> None:
    """Make one full handshake after the other, until this process is ended."""
    os.sched_setaffinity(0, {LOAD_CORE})
    context = client_context(TlsFiles(ca))
    while True:
        with (
            suppress(OSError),
            socket.create_connection(address) as plain,
            context.wrap_socket(plain, server_hostname=address[0]),
        ):
            count.value += 1
        # At most twice the goal: the rest of the core serves the others.
        time.sleep(1 / _HANDSHAKES_GOAL / 2)  # noqa: TID251  (a pace)


def _beside_handshakes(
    server: ServerProcess, ca: str, measure: Callable[[], _Costs]
) -> tuple[_Costs, float]:
    """Return the figures of `measure` while others connect, and their handshakes a second."""
    context = multiprocessing.get_context("spawn")
    count: Synchronized[int] = context.Value("i", 0)
    process = context.Process(target=_shake_hands, args=(server.address, ca, count))
    process.start()
    try:
        while not count.value:
            time.sleep(0.01)  # noqa: TID251  (another process changes it)
        began, before = time.perf_counter(), count.value
        found = measure()
        return found, (count.value - before) / (time.perf_counter() - began)
    finally:
        process.kill()
        process.join()


def write_certificates(directory: Path) -> str:
    """Write certificates; return the file of the CA."""
    write_cluster(
        directory, {1: ["127.0.0.1"]}, cluster="bench", now_ms=RealClock().now_ms(), keeps_key=False
    )
    return str(directory / "ca" / "ca.pem")


def run(settings: Settings) -> list[Row]:
    """Alternate between plain TCP and TLS, without and with handshakes of others."""
    certificates = settings.directory / "certificates"
    ca = write_certificates(certificates)
    with broker_process(
        settings.directory / "data", tls="accept", tls_directory=str(certificates)
    ) as server:

        async def create() -> None:
            host, port = server.address
            async with tidelog.connect(f"{host}:{port}") as client:
                await client.admin.create_topic(_TOPIC)

        trio.run(create)
        plain: list[_Costs] = []
        secured: list[_Costs] = []
        crowded: list[_Costs] = []
        rates: list[float] = []
        for _ in range(settings.choose(6, 2) + 1):
            plain.append(trio.run(_costs, server, settings, None))
            secured.append(trio.run(_costs, server, settings, ca))
            found, rate = _beside_handshakes(
                server, ca, lambda: trio.run(_costs, server, settings, ca)
            )
            crowded.append(found)
            rates.append(rate)
    return _rows(plain[1:], secured[1:], crowded=crowded[1:], rates=rates[1:])


def _rows(
    plain: list[_Costs], secured: list[_Costs], *, crowded: list[_Costs], rates: list[float]
) -> list[Row]:
    cpu = ratios([each.cpu_us for each in secured], [each.cpu_us for each in plain])
    tail = ratios([each.p99_ms for each in secured], [each.p99_ms for each in plain])
    beside = ratios([each.p99_ms for each in crowded], [each.p99_ms for each in secured])
    rate = Spread.of(rates)
    return [
        Row(
            "tls: produce, CPU of the broker for each record, to plain TCP",
            cpu.text(".2f"),
            f"<= {_CPU_GOAL}",
            cpu.median <= _CPU_GOAL,
        ),
        Row(
            "tls: one record at a time, 99 %, to plain TCP",
            tail.text(".2f"),
            f"<= {_P99_GOAL:g}",
            tail.median <= _P99_GOAL,
        ),
        Row("tls: handshakes of others a second", rate.text()),
        Row(
            "tls: one record at a time, 99 %, beside those handshakes, to without",
            beside.text(".2f"),
            f"<= {_P99_GOAL:g}",
            beside.median <= _P99_GOAL,
        ),
        Row("tls: plain TCP, CPU in us", Spread.of(each.cpu_us for each in plain).text(".1f")),
        Row("tls: plain TCP, 99 % in ms", Spread.of(each.p99_ms for each in plain).text(".2f")),
    ]
