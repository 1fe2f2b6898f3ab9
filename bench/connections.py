"""Benchmark of 1,000 connections: fairness between clients, and memory of the broker."""

import selectors
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import final

from bench.figures import Row, Settings, Spread
from bench.machine import broker_process
from bench.produce import Batches
from bench.raw import FRAME_BYTES_MAX, RawConnection
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.produce import Acks
from tidelog.wire.protocol import api
from tidelog.wire.protocol.frame import FrameDecoder, FrameKind

_CONNECTIONS = 1000
_PRODUCERS = 100
_FAIRNESS_GOAL = 0.5
_MiB = 1 << 20
# Memory limit of requests in flight (the broker's default), and an allowance for all else.
_REQUEST_MEMORY_BYTES = 64 * _MiB
_MEMORY_GOAL_BYTES = 150 * _MiB


@contextmanager
def parked_connections(address: tuple[str, int], topic_id: bytes, count: int) -> Generator[None]:
    """Hold connections that each wait for records that never come."""
    connections = [RawConnection(address) for _ in range(count)]
    request = FetchRequest(600_000, 1, 1 << 20, [PartitionFetch(topic_id, 0, 0, 1 << 20)])
    for connection in connections:
        connection.sock.sendall(api.FETCH.encode_request(request, version=1, correlation_id=7))
    yield
    for connection in connections:
        connection.sock.setblocking(False)
        try:
            early = connection.sock.recv(1)
        except BlockingIOError:
            early = None
        assert early is None, "a parked fetch was answered, or its connection closed"
        connection.close()


@final
class _Producer:
    """One connection with one request in flight."""

    def __init__(self, address: tuple[str, int], topic_id: bytes, record_count: int) -> None:
        self.connection = RawConnection(address)
        self._batches = Batches(topic_id, record_count, Acks.ALL, producer_id=0)
        self._decoder = FrameDecoder(max_frame_bytes=FRAME_BYTES_MAX)
        self._unsent = memoryview(b"")
        self.connection.sock.setblocking(False)
        self.answered_count = 0

    @property
    def sock(self) -> socket.socket:
        return self.connection.sock

    def begin(self) -> None:
        """Start to send the next request."""
        self._unsent = memoryview(b"".join(self._batches.next_frame()))

    def send_more(self) -> bool:
        """Send as much as the socket accepts; return whether the request is complete."""
        with suppress(BlockingIOError):
            self._unsent = self._unsent[self.sock.send(self._unsent) :]
        return not self._unsent

    def receive(self) -> bool:
        """Receive the available bytes; return whether the reply is complete."""
        received = self.sock.recv_into(self._decoder.get_buffer())
        if not received:
            raise EOFError("the broker closed a connection")
        self._decoder.bytes_received(received)
        frame = self._decoder.next_frame()
        if frame is None:
            return False
        if frame.kind is not FrameKind.REPLY:
            raise RuntimeError(f"the broker failed: {api.decode_error(frame.header)}")
        reply = api.PRODUCE.decode_reply(frame.header)
        if reply.results[0].error is not None:
            raise RuntimeError(f"the broker rejected the batch: {reply.results[0].error}")
        self.answered_count += 1
        return True


def _drive(producers: list[_Producer], seconds: float) -> None:
    """Run every producer, with one request after the other."""
    with selectors.EpollSelector() as selector:
        for producer in producers:
            producer.begin()
            selector.register(producer.sock, selectors.EVENT_WRITE, producer)
        end = perf_counter() + seconds
        while perf_counter() < end:
            for key, events in selector.select(0.1):
                ready: _Producer = key.data
                if events & selectors.EVENT_WRITE:
                    if ready.send_more():
                        selector.modify(ready.sock, selectors.EVENT_READ, ready)
                elif ready.receive():
                    ready.begin()
                    if not ready.send_more():
                        selector.modify(ready.sock, selectors.EVENT_WRITE, ready)


def run(settings: Settings) -> list[Row]:
    """Produce from a hundred connections, with small and with large batches, beside 900 others."""
    seconds = settings.choose(8, 2)
    rows: list[Row] = []
    for record_count in (100, 4_000):
        with broker_process(settings.directory / "data") as server:
            control = RawConnection(server.address)
            idle_id = control.create_topic("idle")
            topic_id = control.create_topic("busy", durability="replicated")
            with parked_connections(server.address, idle_id, _CONNECTIONS - _PRODUCERS):
                producers = [
                    _Producer(server.address, topic_id, record_count) for _ in range(_PRODUCERS)
                ]
                _drive(producers, seconds)
                served = Spread.of(producer.answered_count for producer in producers)
                peak = server.resident_bytes_peak
                for producer in producers:
                    producer.connection.close()
            control.delete_topic("idle")
            control.delete_topic("busy")
            control.close()
        rows += _rows(f"{record_count:,} records a batch", served, peak)
    return rows


def _rows(what: str, served: Spread, peak: int) -> list[Row]:
    fairness = served.low / served.median
    bound = _REQUEST_MEMORY_BYTES + _MEMORY_GOAL_BYTES
    return [
        Row(
            f"connections: {_CONNECTIONS:,}, {_PRODUCERS} of them producing, {what}: requests"
            " answered to each, the slowest to the median",
            f"{served.text()}: {fairness:.2f}, no error",
            f">= {_FAIRNESS_GOAL}",
            fairness >= _FAIRNESS_GOAL,
        ),
        Row(
            f"connections: {what}: most resident memory of the broker",
            f"{peak / _MiB:.0f} MiB",
            f"< {bound / _MiB:.0f} MiB",
            peak < bound,
        ),
    ]
