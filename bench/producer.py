"""Benchmark of the producer: acknowledged records a second of one process."""

import os
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

import trio

import tidelog
from bench.bare_server import Order
from bench.figures import Row, Settings, Spread
from bench.machine import bare_process, broker_process
from bench.raw import RECORD_BYTES, Address, connect_bare, make_varied_values, pump
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceRequest
from tidelog.wire.protocol import api

_BATCH_RECORDS = 1_872
"""Records of 100 bytes in the mean in one batch of the producer, by default."""
_BATCHES_UNDER_WAY = 5
_SEND_MANY_RECORDS = 100_000
_NOWAIT_GOAL = 800_000
_SHARE_GOAL = 0.5
_SEND_MANY_GOAL = 2
"""Goal as a multiple of that of `send_nowait`."""
_REPLY_HEADER_BYTES = 10
_SYNC_BYTES = 1 << 20
_TOPIC = "producer"


class _Cost(NamedTuple):
    """Figures of one run."""

    rate: float
    """Records a second."""
    cpu_ns: float
    """Nanoseconds of processor time of the client process, for each record."""


_Send = Callable[[tidelog.Producer, list[bytes]], Awaitable[None]]


async def _send_nowait(producer: tidelog.Producer, values: list[bytes]) -> None:
    """Send one record after the other."""
    send_nowait = producer.send_nowait
    for value in values:
        try:
            send_nowait(_TOPIC, value)
        except trio.WouldBlock:
            await producer.wait_writable()
            send_nowait(_TOPIC, value)
    await producer.flush()


async def _send_many(producer: tidelog.Producer, values: list[bytes]) -> None:
    for first in range(0, len(values), _SEND_MANY_RECORDS):
        await producer.send_many(_TOPIC, values[first : first + _SEND_MANY_RECORDS])


async def _acknowledged(
    address: Address, values: list[bytes], durability: str, *, send: _Send
) -> _Cost:
    """Return figures from the first call until the last record is acknowledged."""
    host, port = address
    async with tidelog.connect(f"{host}:{port}") as client:
        await client.admin.create_topic(_TOPIC, durability=durability)
        async with client.producer() as producer:
            await producer.send(_TOPIC, values[0])  # Connects, and obtains a producer id.
            began, cpu_s = perf_counter(), process_time()
            await send(producer, values)
            elapsed, cpu_s = perf_counter() - began, process_time() - cpu_s
        (topic,) = await client.admin.describe_topics([_TOPIC])
        assert topic.partitions[0].high_watermark == len(values) + 1, "records are missing"
        await client.admin.delete_topic(_TOPIC)
    return _Cost(len(values) / elapsed, cpu_s / len(values) * 1e9)


def _disk_rate(path: Path, total_bytes: int) -> float:
    """Return records a second that the disk accepts, without brokers and connections."""
    chunk = bytes(_SYNC_BYTES)
    count = total_bytes // _SYNC_BYTES
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    began = perf_counter()
    for number in range(count):
        os.pwrite(descriptor, chunk, number * _SYNC_BYTES)
        os.fdatasync(descriptor)
    elapsed = perf_counter() - began
    os.close(descriptor)
    path.unlink()
    return count * _SYNC_BYTES / RECORD_BYTES / elapsed


def _packed_rate(address: Address, values: list[bytes], path: Path) -> float:
    """Return records a second that are only packed into batches and sent."""

    def pack() -> tuple[bytes, bytearray]:
        columns = Columns(_BATCH_RECORDS, values=values[:_BATCH_RECORDS])
        batch = encode_batch(columns, first_timestamp_ms=1)
        request = ProduceRequest(Acks.ALL, 30_000, [PartitionBatch(bytes(16), 0, len(batch))])
        head = api.PRODUCE.encode_request(
            request, version=1, correlation_id=0, attachment_length=len(batch)
        )
        return head, batch

    head, batch = pack()
    order = Order(
        mode="produce",
        frame_bytes=len(head) + len(batch),
        batch_bytes=len(batch),
        path=str(path),
        reply_header_bytes=_REPLY_HEADER_BYTES,
    )
    sock = connect_bare(address, order)
    count = len(values) // _BATCH_RECORDS
    began = perf_counter()
    pump(sock, pack, count, depth=_BATCHES_UNDER_WAY)
    elapsed = perf_counter() - began
    sock.close()
    path.unlink()
    return count * _BATCH_RECORDS / elapsed


def run(settings: Settings) -> list[Row]:
    """Measure packing and sending alone, then each send method under each durability, in turn."""
    values = make_varied_values(settings.choose(2_000_000, 500_000))
    packed: list[float] = []
    disk: list[float] = []
    costs: dict[tuple[str, str], list[_Cost]] = {}
    with (
        broker_process(settings.directory / "data") as broker_server,
        bare_process() as bare_server,
    ):
        for number in range(settings.choose(8, 3)):
            path = settings.directory / "bare"
            packed_rate = _packed_rate(bare_server.address, values, path)
            disk_rate = _disk_rate(path, len(values) * RECORD_BYTES)
            if number:  # The first round warms up.
                packed.append(packed_rate)
                disk.append(disk_rate)
            for durability in ("fsync", "replicated"):
                for name, send in (("send_nowait", _send_nowait), ("send_many", _send_many)):
                    address = broker_server.address
                    cost = trio.run(partial(_acknowledged, address, values, durability, send=send))
                    if number:
                        costs.setdefault((name, durability), []).append(cost)
    packed_alone, disk_alone = Spread.of(packed), Spread.of(disk)
    nowait_goal = min(_NOWAIT_GOAL, _SHARE_GOAL * packed_alone.median)
    goals = {"send_nowait": nowait_goal, "send_many": _SEND_MANY_GOAL * nowait_goal}
    # A broker cannot acknowledge more than the disk accepts.
    disk_goals = {"fsync": _SHARE_GOAL * disk_alone.median, "replicated": inf}
    rows = [
        _row(
            f"`{name}`, acks all, `{durability}`",
            Spread.of(cost.rate for cost in measured),
            min(goals[name], disk_goals[durability]),
        )
        for (name, durability), measured in costs.items()
    ]
    for name in goals:
        spent = Spread.of(cost.cpu_ns for cost in costs[name, "replicated"])
        rows.append(
            Row(f"producer: `{name}`, `replicated`: client CPU for a record, ns", spent.text())
        )
    rows.append(Row("producer: packing and sending alone", packed_alone.text()))
    what = "producer: the disk alone, as many bytes, 1 MiB a write and fdatasync"
    return [*rows, Row(what, disk_alone.text())]


def _row(what: str, rate: Spread, goal: float) -> Row:
    return Row(
        f"producer: values of 60 to 140 bytes without keys, {what}: records acknowledged a second",
        rate.text(),
        f">= {goal:,.0f}",
        rate.median >= goal,
    )
