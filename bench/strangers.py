"""Benchmark of 10,000 strangers that connect and are silent: memory, and service of a client."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from statistics import quantiles
from time import perf_counter
from typing import Final

from bench.figures import Row, Settings
from bench.machine import broker_process
from bench.raw import RawConnection
from bench.tls import write_certificates
from tidelog.wire.env.real.certificate_files import TlsFiles, client_context
from tidelog.wire.messages.handshake import HelloRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api

_STRANGERS: Final = 10_000
_STRANGERS_QUICK: Final = 2_000
_ASK_EACH: Final = 20
"""Strangers that connect between two requests of the client."""
_MiB: Final = 1 << 20
_MEMORY_GOAL_BYTES: Final = 100 * _MiB
_PLACES: Final = 20_000
_MODES: Final = ("connect only", "send a hello", "complete a TLS handshake")


def _strangers(address: tuple[str, int], mode: str, ca: str) -> Iterator[socket.socket]:
    """Connect, without end."""
    context = client_context(TlsFiles(ca))
    hello = api.HELLO.encode_request(HelloRequest("stranger", "0"), version=1, correlation_id=0)
    while True:
        sock = socket.create_connection(address)
        if mode == _MODES[1]:
            sock.sendall(hello)
        elif mode == _MODES[2]:
            sock = context.wrap_socket(sock, server_hostname=address[0])
        yield sock


def _measured(settings: Settings, mode: str, count: int) -> tuple[int, float, float]:
    """Return more bytes of the broker, the client's 99 % in ms, and CPU for each stranger in us."""
    certificates = settings.directory / f"certificates {mode}"
    ca = write_certificates(certificates)
    with (
        broker_process(
            settings.directory / f"data {mode}",
            tls="accept",
            tls_directory=str(certificates),
            max_connections=str(_PLACES),
        ) as server,
        ExitStack() as open_,
    ):
        client = RawConnection(server.address)
        client.ask(api.METADATA, MetadataRequest([]))
        memory, cpu_s = server.resident_bytes, server.cpu_seconds
        times: list[float] = []
        for number, sock in enumerate(islice(_strangers(server.address, mode, ca), count)):
            open_.callback(sock.close)
            if number % _ASK_EACH == 0:
                began = perf_counter()
                client.ask(api.METADATA, MetadataRequest([]))
                times.append((perf_counter() - began) * 1e3)
        more_bytes = server.resident_bytes - memory
        cpu_us = (server.cpu_seconds - cpu_s) / count * 1e6
        client.close()
    return more_bytes, quantiles(times, n=100)[98], cpu_us


def run(settings: Settings) -> list[Row]:
    """Connect as fast as one process can, while a client asks for metadata."""
    count = settings.choose(_STRANGERS, _STRANGERS_QUICK)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    goal_bytes = _MEMORY_GOAL_BYTES * count // _STRANGERS
    rows: list[Row] = []
    for mode in _MODES:
        more_bytes, tail_ms, cpu_us = _measured(settings, mode, count)
        rows += [
            Row(
                f"strangers: {count:,} that {mode}: more memory of the broker",
                f"{more_bytes / _MiB:.0f} MiB",
                f"<= {goal_bytes / _MiB:.0f} MiB",
                more_bytes <= goal_bytes,
            ),
            Row(f"strangers: that {mode}: METADATA of a client, 99 % in ms", f"{tail_ms:.1f}"),
            Row(f"strangers: that {mode}: CPU of the broker for each, in us", f"{cpu_us:.0f}"),
        ]
    return rows
