"""Benchmark of produce requests, against a bare server that checks and writes."""

import socket
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from bench.bare_server import Order
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import ServerProcess, bare_process, broker_process
from bench.raw import RECORD_BYTES, RawConnection, connect_bare, make_batch, pump
from tidelog.wire.batch.record_batch import restamp_producer
from tidelog.wire.messages.produce import Acks, InitProducerRequest, PartitionBatch, ProduceRequest
from tidelog.wire.protocol import api

_RECORDS_IN_BATCH = 1000
_DEPTH = 5
_GOAL = 0.6
_REPLY_HEADER_BYTES = 10


class Batches:
    """Frames of one idempotent producer: the same records again and again, as new batches."""

    def __init__(self, topic_id: bytes, record_count: int, acks: Acks, *, producer_id: int) -> None:
        """Address the first partition of a topic."""
        self.batch = make_batch(record_count)
        request = ProduceRequest(acks, 30_000, [PartitionBatch(topic_id, 0, len(self.batch))])
        self.head = api.PRODUCE.encode_request(
            request, version=1, correlation_id=0, attachment_length=len(self.batch)
        )
        self._record_count = record_count
        self._producer_id = producer_id
        self._sequence = 0

    @property
    def frame_bytes(self) -> int:
        """Length of every frame."""
        return len(self.head) + len(self.batch)

    def next_frame(self) -> tuple[bytes, bytearray]:
        """Return the next frame in two parts; the second is changed by the next call."""
        restamp_producer(
            self.batch,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        self._sequence += self._record_count
        return self.head, self.batch


def _rate(
    sock: socket.socket, batches: Batches, count: int, *, server: ServerProcess
) -> tuple[float, float]:
    """Return requests a second and the server's microseconds of processor time for each."""
    cpu_before = server.cpu_seconds
    began = perf_counter()
    pump(sock, batches.next_frame, count, depth=_DEPTH)
    elapsed = perf_counter() - began
    return count / elapsed, (server.cpu_seconds - cpu_before) / count * 1e6


def _to_broker(broker: RawConnection, server: ServerProcess, count: int) -> tuple[float, float]:
    topic_id = broker.create_topic("produce", durability="replicated")
    producer_id = broker.ask(api.INIT_PRODUCER, InitProducerRequest()).producer_id
    batches = Batches(topic_id, _RECORDS_IN_BATCH, Acks.LEADER, producer_id=producer_id)
    rate = _rate(broker.sock, batches, count, server=server)
    broker.check_end_offset(topic_id, count * _RECORDS_IN_BATCH)
    broker.delete_topic("produce")
    return rate


def _to_bare(server: ServerProcess, path: Path, count: int) -> tuple[float, float]:
    batches = Batches(bytes(16), _RECORDS_IN_BATCH, Acks.LEADER, producer_id=1)
    order = Order(
        mode="produce",
        frame_bytes=batches.frame_bytes,
        batch_bytes=len(batches.batch),
        path=str(path),
        reply_header_bytes=_REPLY_HEADER_BYTES,
    )
    sock = connect_bare(server.address, order)
    rate = _rate(sock, batches, count, server=server)
    sock.close()
    path.unlink()
    return rate


def run(settings: Settings) -> list[Row]:
    """Send the same batches alternately to the broker and the bare server."""
    count = settings.choose(4_000, 2_000)
    batch_bytes = len(make_batch(_RECORDS_IN_BATCH))
    path = settings.directory / "bare"
    with (
        broker_process(settings.directory / "data") as broker_server,
        bare_process() as bare_server,
    ):
        broker = RawConnection(broker_server.address)
        steps: list[Callable[[], tuple[float, float]]] = [
            lambda: _to_bare(bare_server, path, count),
            lambda: _to_broker(broker, broker_server, count),
        ]
        rounds = [[step() for step in steps] for _ in range(settings.choose(12, 4))][1:]
        broker.close()
    bare = [rate for (rate, _), _ in rounds]
    ours = [rate for _, (rate, _) in rounds]
    ratio = ratios(ours, bare)
    megabytes = batch_bytes / 1e6
    cpu = Spread.of(ours_cpu - bare_cpu for (_, bare_cpu), (_, ours_cpu) in rounds)
    return [
        Row(
            f"produce: {_RECORDS_IN_BATCH:,} records of {RECORD_BYTES} bytes a batch, acks 1,"
            " `replicated`, to a bare server that checks and writes",
            ratio.text(".2f"),
            f">= {_GOAL}",
            ratio.median >= _GOAL,
        ),
        Row("produce: broker, MB/s", Spread.of(rate * megabytes for rate in ours).text()),
        Row("produce: bare server, MB/s", Spread.of(rate * megabytes for rate in bare).text()),
        Row("produce: broker beyond the bare server, µs of CPU a request", cpu.text()),
    ]
