"""Benchmark of produce latency: acks all, `durability = fsync`, one record in flight."""

import socket
from collections.abc import Callable
from statistics import quantiles
from time import perf_counter

from bench.bare_server import Order
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import bare_process, broker_process
from bench.produce import Batches
from bench.raw import RawConnection, connect_bare, pump
from tidelog.wire.messages.produce import Acks

_GOAL = 3
_REPLY_HEADER_BYTES = 10


def _latencies(sock: socket.socket, batches: Batches, count: int) -> tuple[float, float]:
    """Return the median and the 99th percentile, in microseconds."""
    measured: list[float] = []
    for _ in range(count):
        began = perf_counter()
        pump(sock, batches.next_frame, 1, depth=1)
        measured.append((perf_counter() - began) * 1e6)
    percentiles = quantiles(measured, n=100)
    return percentiles[49], percentiles[98]


def run(settings: Settings) -> list[Row]:
    """Alternate between a broker and a bare server that writes, syncs and answers."""
    count = settings.choose(500, 100)
    with (
        broker_process(settings.directory / "data") as broker_server,
        bare_process() as bare_server,
    ):
        broker = RawConnection(broker_server.address)
        to_broker = Batches(broker.create_topic("latency"), 1, Acks.ALL, producer_id=0)
        to_bare = Batches(bytes(16), 1, Acks.ALL, producer_id=0)
        order = Order(
            mode="sync",
            frame_bytes=to_bare.frame_bytes,
            batch_bytes=len(to_bare.batch),
            path=str(settings.directory / "bare"),
            reply_header_bytes=_REPLY_HEADER_BYTES,
        )
        bare = connect_bare(bare_server.address, order)
        steps: list[Callable[[], tuple[float, float]]] = [
            lambda: _latencies(bare, to_bare, count),
            lambda: _latencies(broker.sock, to_broker, count),
        ]
        rounds = [[step() for step in steps] for _ in range(settings.choose(12, 4))][1:]
        bare.close()
        broker.close()
    bare_medians = [median for (median, _), _ in rounds]
    medians = [median for _, (median, _) in rounds]
    ratio = ratios(medians, bare_medians)
    return [
        Row(
            "latency: one record at a time, acks all, `fsync`: median, to a bare round trip with"
            " write and fdatasync",
            ratio.text(".2f"),
            f"< {_GOAL}",
            ratio.median < _GOAL,
        ),
        Row("latency: broker, median in µs", Spread.of(medians).text()),
        Row("latency: bare server, median in µs", Spread.of(bare_medians).text()),
        Row("latency: broker, 99 % in µs", Spread.of(tail for _, (_, tail) in rounds).text()),
        Row("latency: bare server, 99 % in µs", Spread.of(tail for (_, tail), _ in rounds).text()),
    ]
