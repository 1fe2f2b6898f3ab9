"""Benchmark of replication on three brokers, by `acks` and `durability`.

One partition with three replicas, one idempotent producer, one connection. The three brokers and
the load share the cores of the machine.
"""

import os
import select
import socket
from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from time import perf_counter, sleep  # noqa: TID251  (the benchmark waits for the disk)
from typing import Final, Self

from bench.figures import Row, Settings, Spread, ratios
from bench.nodes import Nodes, wait_for
from bench.produce import Batches
from bench.raw import FRAME_BYTES_MAX, RECORD_BYTES, RawConnection, make_batch, pump
from tidelog.wire.messages.produce import Acks, InitProducerRequest
from tidelog.wire.messages.topics import (
    CreateTopicRequest,
    DeleteTopicRequest,
    DescribeTopicsRequest,
    PartitionDescription,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.frame import FrameDecoder, FrameKind

_DEPTH: Final = 5
_TOPIC: Final = "replication"
_WARM_UP: Final = 20
_LARGE: Final = 1000
"""Records in a batch for throughput."""
_SMALL: Final = 10
"""Records in a batch for latency."""
_GOAL_MS: Final = 10.0
_REPLICAS: Final = 3


@dataclass(frozen=True, slots=True)
class _Case:
    acks: Acks
    durability: str


@dataclass(frozen=True, slots=True)
class _Rates:
    """Batches a second."""

    told: float
    """Rate until the last acknowledgement."""
    copied: float
    """Rate until every replica has the batches, on disk with `fsync`."""


@dataclass(frozen=True, slots=True)
class _Offered:
    """Batches at fixed times."""

    record_count: int
    """Records in each batch."""
    rate: float
    """Batches a second."""
    count: int


@dataclass(frozen=True, slots=True)
class _Percentiles:
    median_ms: float
    p99_ms: float

    @classmethod
    def of(cls, took: list[float]) -> Self:
        """Return the percentiles of times in seconds."""
        percentiles = quantiles(took, n=100)
        return cls(percentiles[49] * 1e3, percentiles[98] * 1e3)


_ALL_FSYNC: Final = _Case(Acks.ALL, "fsync")
_CASES: Final = (
    _ALL_FSYNC,
    _Case(Acks.LEADER, "fsync"),
    _Case(Acks.ALL, "replicated"),
    _Case(Acks.LEADER, "replicated"),
)


def run(settings: Settings) -> list[Row]:
    """Measure each case in turn, many times, then latency at half of the highest rate."""
    repetitions = settings.choose(8, 3)
    with Nodes(settings.directory, _REPLICAS) as nodes:
        nodes.wait_complete()
        count = settings.choose(1_500, 300)
        rates = [
            {case: _rates(nodes, case, _LARGE, count=count) for case in _CASES}
            for _ in range(repetitions + 1)
        ][1:]
        rows = _throughput(rates)
        for record_count in (_SMALL, _LARGE):
            rows += _latency(nodes, record_count, settings)
    return rows


def _throughput(rates: list[dict[_Case, _Rates]]) -> list[Row]:
    what = f"replication: {_LARGE:,} records of {RECORD_BYTES} bytes a batch, 3 replicas"
    megabytes = _LARGE * RECORD_BYTES / 1e6
    rows: list[Row] = []
    for case in _CASES:
        name = f"{what}: acks {'all' if case.acks is Acks.ALL else '1'}, `{case.durability}`"
        told = Spread.of(each[case].told * megabytes for each in rates)
        rows.append(Row(f"{name}, MB/s", told.text()))
        if case.acks is Acks.LEADER:
            copied = Spread.of(each[case].copied * megabytes for each in rates)
            rows.append(Row(f"{name}, until every replica has it, MB/s", copied.text()))
    for durability in ("fsync", "replicated"):
        of_all = [each[_Case(Acks.ALL, durability)].told for each in rates]
        of_leader = [each[_Case(Acks.LEADER, durability)].told for each in rates]
        ratio = ratios(of_all, of_leader)
        rows.append(Row(f"{what}: acks all to acks 1, `{durability}`", ratio.text(".2f")))
    ratio = ratios(
        [each[_ALL_FSYNC].told for each in rates],
        [each[_Case(Acks.ALL, "replicated")].told for each in rates],
    )
    rows.append(Row(f"{what}: `fsync` to `replicated`, acks all", ratio.text(".2f")))
    return rows


def _latency(nodes: Nodes, record_count: int, settings: Settings) -> list[Row]:
    """Offer half of the highest rate at fixed times, regardless of requests in flight.

    The latency of a delayed batch counts from its due time.
    """
    count = settings.choose(3_000, 400) if record_count == _SMALL else settings.choose(1_500, 300)
    seconds = settings.choose(10, 3)
    rates: list[float] = []
    took: list[_Percentiles] = []
    alone: list[_Percentiles] = []
    for _ in range(settings.choose(6, 2)):
        rate = _rates(nodes, _ALL_FSYNC, record_count, count=count).told
        rates.append(rate)
        offered = _Offered(record_count, rate / 2, int(rate / 2 * seconds))
        took.append(_Percentiles.of(_times(nodes, offered)))
        alone.append(_Percentiles.of(_disk_times(settings.directory, offered)))
    what = f"replication: {record_count:,} records a batch, acks all, `fsync`"
    disk = "the disk alone, the same into three files at the same times"
    tail = Spread.of(each.p99_ms for each in took)
    return [
        Row(f"{what}: highest rate, batches/s", Spread.of(rates).text()),
        Row(
            f"{what}: at half of it, median in ms",
            Spread.of(each.median_ms for each in took).text(".1f"),
        ),
        Row(
            f"{what}: at half of it, 99 % in ms",
            tail.text(".1f"),
            f"< {_GOAL_MS:g}",
            tail.median < _GOAL_MS,
        ),
        Row(f"{what}: {disk}, median in ms", Spread.of(e.median_ms for e in alone).text(".1f")),
        Row(f"{what}: {disk}, 99 % in ms", Spread.of(e.p99_ms for e in alone).text(".1f")),
    ]


def _rates(nodes: Nodes, case: _Case, record_count: int, *, count: int) -> _Rates:
    """Return the rates of `count` batches, with `_DEPTH` of them in flight."""
    with _a_topic(nodes, case, record_count, count=count) as (sock, batches):
        began = perf_counter()
        pump(sock, batches.next_frame, count, depth=_DEPTH)
        told_s = perf_counter() - began
        wait_for(lambda: _is_everywhere(nodes) or None)
        return _Rates(count / told_s, count / (perf_counter() - began))


def _times(nodes: Nodes, offered: _Offered) -> list[float]:
    """Return the seconds of each batch from its due time."""
    count = offered.count
    with _a_topic(nodes, _ALL_FSYNC, offered.record_count, count=count) as (sock, batches):
        decoder = FrameDecoder(max_frame_bytes=FRAME_BYTES_MAX)
        took: list[float] = []
        due: deque[float] = deque()
        began, sent_count = perf_counter(), 0
        while len(took) < count:
            now = perf_counter()
            next_at = began + sent_count / offered.rate
            if sent_count < count and now >= next_at:
                sock.sendmsg(batches.next_frame())
                due.append(next_at)
                sent_count += 1
                continue
            patience_s = None if sent_count == count else next_at - now
            if not select.select([sock], [], [], patience_s)[0]:
                continue
            decoder.bytes_received(sock.recv_into(decoder.get_buffer()))
            now = perf_counter()
            while (frame := decoder.next_frame()) is not None:
                assert frame.kind is FrameKind.REPLY, api.decode_error(frame.header)
                took.append(now - due.popleft())
        return took


def _disk_times(directory: Path, offered: _Offered) -> list[float]:
    """Return the seconds of each batch until three files hold it on disk.

    Without brokers: all due batches are written, and share one sync.
    """
    batch = make_batch(offered.record_count)
    began = perf_counter()

    def write(path: Path) -> list[float]:
        took: list[float] = []
        with path.open("wb", buffering=0) as file:
            while (done := len(took)) < offered.count:
                ahead_s = began + done / offered.rate - perf_counter()
                if ahead_s > 0:
                    sleep(ahead_s)
                due = min(offered.count, int((perf_counter() - began) * offered.rate) + 1)
                for _ in range(done, due):
                    file.write(batch)
                os.fdatasync(file.fileno())
                now = perf_counter()
                took += [now - began - number / offered.rate for number in range(done, due)]
        path.unlink()
        return took

    with ThreadPoolExecutor(_REPLICAS) as threads:
        files = [directory / f"alone-{number}" for number in range(_REPLICAS)]
        return [max(each) for each in zip(*threads.map(write, files), strict=True)]


@contextmanager
def _a_topic(
    nodes: Nodes, case: _Case, record_count: int, *, count: int
) -> Generator[tuple[socket.socket, Batches]]:
    """Create a topic, and connect to its leader, for `count` batches."""
    settings = {"durability": case.durability}
    reply = nodes.call_any(
        api.CREATE_TOPIC, CreateTopicRequest(_TOPIC, 1, settings, False, _REPLICAS)
    )
    leader_id = wait_for(lambda: _described(nodes).leader_id)
    leader = RawConnection(("127.0.0.1", nodes.ports[leader_id]))
    producer_id = leader.ask(api.INIT_PRODUCER, InitProducerRequest()).producer_id
    batches = Batches(reply.topic_id, record_count, case.acks, producer_id=producer_id)
    pump(leader.sock, batches.next_frame, _WARM_UP, depth=_DEPTH)
    yield leader.sock, batches
    leader.check_end_offset(reply.topic_id, (count + _WARM_UP) * record_count)
    leader.close()
    nodes.call_any(api.DELETE_TOPIC, DeleteTopicRequest(_TOPIC))
    # Followers delete files later, and freeing some 100 MB would slow down the next case.
    wait_for(lambda: not nodes.has_files_of(_TOPIC) or None)


def _described(nodes: Nodes) -> PartitionDescription:
    (topic,) = nodes.call_any(api.DESCRIBE_TOPICS, DescribeTopicsRequest([_TOPIC])).topics
    (partition,) = topic.partitions
    return partition


def _is_everywhere(nodes: Nodes) -> bool:
    partition = _described(nodes)
    # All replicas are in sync, so all of them have the committed records.
    is_committed = partition.high_watermark == partition.log_end_offset
    return is_committed and len(partition.in_sync_replicas) == len(partition.replicas)
