"""Benchmark of fetch requests, against a bare server that sends the same files."""

import socket
from collections.abc import Callable, Iterator
from time import perf_counter

from bench.bare_server import Order
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import ServerProcess, bare_process, broker_process
from bench.produce import Batches
from bench.raw import RECORD_BYTES, RawConnection, connect_bare, pump
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.produce import Acks
from tidelog.wire.protocol import api

_RECORDS_IN_BATCH = 1000
_BATCHES_IN_REPLY = 9
_REPLIES_IN_SEGMENT = 128
_DEPTH = 4
_GOAL = 0.6
_REPLY_HEADER_BYTES = 12


def _requests(topic_id: bytes, batch_bytes: int, reply_count: int) -> list[bytes]:
    """Return the fetch requests of the whole log."""
    region_bytes = _BATCHES_IN_REPLY * batch_bytes
    return [
        api.FETCH.encode_request(
            FetchRequest(
                0,
                1,
                region_bytes,
                [
                    PartitionFetch(
                        topic_id, 0, number * _BATCHES_IN_REPLY * _RECORDS_IN_BATCH, region_bytes
                    )
                ],
            ),
            version=1,
            correlation_id=0,
        )
        for number in range(reply_count)
    ]


def _rate(sock: socket.socket, frames: list[bytes], server: ServerProcess) -> tuple[float, float]:
    """Return replies a second and the server's microseconds of processor time for each."""
    following: Iterator[bytes] = iter(frames)
    cpu_before = server.cpu_seconds
    began = perf_counter()
    pump(sock, lambda: [next(following)], len(frames), depth=_DEPTH)
    elapsed = perf_counter() - began
    return len(frames) / elapsed, (server.cpu_seconds - cpu_before) / len(frames) * 1e6


def _bare_order(settings: Settings, frame_bytes: int, region_bytes: int) -> Order:
    end = SEGMENT_HEADER_SIZE + _REPLIES_IN_SEGMENT * region_bytes
    segments = sorted((settings.directory / "data").glob("topics/fetch.*/0/*.log"))
    return Order(
        mode="fetch",
        frame_bytes=frame_bytes,
        reply_header_bytes=_REPLY_HEADER_BYTES,
        files=[(str(segment), SEGMENT_HEADER_SIZE, end) for segment in segments],
        region_bytes=region_bytes,
    )


def run(settings: Settings) -> list[Row]:
    """Write a log, then read it alternately from the broker and the bare server."""
    with (
        broker_process(settings.directory / "data") as broker_server,
        bare_process() as bare_server,
    ):
        broker = RawConnection(broker_server.address)
        # Every segment holds the same number of whole replies, so all requests can be encoded
        # before the first reply arrives.
        batch_bytes = len(Batches(bytes(16), _RECORDS_IN_BATCH, Acks.LEADER, producer_id=0).batch)
        region_bytes = _BATCHES_IN_REPLY * batch_bytes
        topic_id = broker.create_topic(
            "fetch",
            durability="replicated",
            segment_bytes=str(SEGMENT_HEADER_SIZE + _REPLIES_IN_SEGMENT * region_bytes),
        )
        reply_count = _REPLIES_IN_SEGMENT * settings.choose(8, 2)
        batches = Batches(topic_id, _RECORDS_IN_BATCH, Acks.LEADER, producer_id=0)
        pump(broker.sock, batches.next_frame, reply_count * _BATCHES_IN_REPLY, depth=_DEPTH)
        frames = _requests(topic_id, batch_bytes, reply_count)
        order = _bare_order(settings, len(frames[0]), region_bytes)
        uniform = [frames[0]] * reply_count
        bare = connect_bare(bare_server.address, order)
        passes = settings.choose(4, 1)
        steps: list[Callable[[], tuple[float, float]]] = [
            lambda: _rate(bare, uniform * passes, bare_server),
            lambda: _rate(broker.sock, frames * passes, broker_server),
        ]
        rounds = [[step() for step in steps] for _ in range(settings.choose(12, 4))][1:]
        broker.close()
        bare.close()
    return _rows(rounds, region_bytes)


def _rows(rounds: list[list[tuple[float, float]]], region_bytes: int) -> list[Row]:
    bare = [rate for (rate, _), _ in rounds]
    ours = [rate for _, (rate, _) in rounds]
    ratio = ratios(ours, bare)
    megabytes = region_bytes / 1e6
    cpu = Spread.of(ours_cpu - bare_cpu for (_, bare_cpu), (_, ours_cpu) in rounds)
    return [
        Row(
            f"fetch: replies of {_BATCHES_IN_REPLY} batches of {_RECORDS_IN_BATCH:,} records of"
            f" {RECORD_BYTES} bytes, not decoded, to a bare server that sends the same files",
            ratio.text(".2f"),
            f">= {_GOAL}",
            ratio.median >= _GOAL,
        ),
        Row("fetch: broker, MB/s", Spread.of(rate * megabytes for rate in ours).text()),
        Row("fetch: bare server, MB/s", Spread.of(rate * megabytes for rate in bare).text()),
        Row("fetch: broker beyond the bare server, µs of CPU a reply", cpu.text()),
    ]
