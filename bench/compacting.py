"""Benchmark of compaction in a broker: its speed, its memory, and the latency of producers."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from time import perf_counter, sleep  # noqa: TID251  (a process is looked at from outside)

from bench.figures import Row, Settings, Spread, ratios
from bench.machine import ServerProcess, broker_process
from bench.produce import Batches
from bench.raw import RawConnection, pump
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceRequest
from tidelog.wire.messages.topics import AlterTopicRequest
from tidelog.wire.protocol import api

_MB = 1_000_000
_BATCH_RECORDS = 1_000
_DEPTH = 5
_COPY_BYTES = 1 << 20
_SEGMENT_BYTES = 16 << 20
_QUICK_SEGMENT_BYTES = 1 << 20
_GROWTH_GOAL_MB = 200
_PATIENCE_S = 900.0
_LOOK_S = 0.01
_UNLIMITED = str(1 << 40)


def run(settings: Settings) -> list[Row]:
    """Fill logs with keys, and compact them."""
    return [*_speed(settings), *_memory(settings), *_latency(settings)]


class _States:
    """A topic of states in a broker: records of 100 bytes with keys of 12."""

    def __init__(self, server: ServerProcess, name: str, *, segment_bytes: int) -> None:
        """Create the topic without compaction."""
        self._broker = RawConnection(server.address)
        self._server = server
        self._name = name
        self._topic_id = self._broker.create_topic(
            name,
            segment_bytes=str(segment_bytes),
            durability="replicated",
            min_cleanable_dirty_ratio="0",
            delete_retention_ms="0",
        )
        self._segment_bytes = segment_bytes
        self._end_offset = 0
        self.size_bytes = 0

    def fill(self, count: int, key_count: int) -> None:
        """Append `count` records with the keys in turn."""
        frames = self._frames(count, key_count)
        pump(self._broker.sock, lambda: next(frames), count // _BATCH_RECORDS, depth=_DEPTH)

    def compact(self) -> None:
        """Enable compaction of the topic."""
        changes = {"cleanup_policy": "compact"}
        self._broker.ask(api.ALTER_TOPIC, AlterTopicRequest(self._name, changes, []))

    @property
    def is_clean(self) -> bool:
        """Whether a round has reached the active segment."""
        enough = self._end_offset - self._segment_bytes // (self.size_bytes // self._end_offset)
        return any(event["clean_offset"] >= enough for event in _rounds(self._server))

    def wait(self) -> None:
        """Wait until the log is clean."""
        deadline = perf_counter() + _PATIENCE_S
        while not self.is_clean:
            if perf_counter() > deadline:
                raise RuntimeError("compaction did not finish in time")
            sleep(_LOOK_S)

    def delete(self) -> None:
        """Delete the topic and its files."""
        self._broker.delete_topic(self._name)
        self._broker.close()

    def _frames(self, count: int, key_count: int) -> Iterator[tuple[bytes, bytearray]]:
        now_ms = time.time_ns() // 1_000_000
        for base in range(0, count, _BATCH_RECORDS):
            keys = [
                b"%012d" % (number % key_count) for number in range(base, base + _BATCH_RECORDS)
            ]
            values = [b"%088d" % number for number in range(base, base + _BATCH_RECORDS)]
            columns = Columns(_BATCH_RECORDS, keys=keys, values=values)
            batch = encode_batch(columns, first_timestamp_ms=now_ms)
            entry = PartitionBatch(self._topic_id, 0, len(batch))
            head = api.PRODUCE.encode_request(
                ProduceRequest(Acks.LEADER, 30_000, [entry]),
                version=1,
                correlation_id=0,
                attachment_length=len(batch),
            )
            self._end_offset += _BATCH_RECORDS
            self.size_bytes += len(batch)
            yield head, batch


def _rounds(server: ServerProcess) -> list[dict[str, int]]:
    events = (json.loads(line) for line in list(server.log) if "log_compacted" in line)
    return [event for event in events if event.get("event") == "log_compacted"]


def _speed(settings: Settings) -> list[Row]:
    """Compact a log with two records of every key, after a copy of the same files."""
    count = settings.choose(2_000_000, 100_000)
    segment_bytes = settings.choose(_SEGMENT_BYTES, _QUICK_SEGMENT_BYTES)
    copies: list[float] = []
    rates: list[float] = []
    for number in range(settings.choose(5, 3)):
        data = settings.directory / f"speed {number}"
        with broker_process(
            data, log_cleaner_max_bytes_per_second=_UNLIMITED, maintenance_interval_ms="100ms"
        ) as server:
            states = _States(server, "states", segment_bytes=segment_bytes)
            states.fill(count, count // 2)
            copies.append(states.size_bytes / _copy_s(data, settings.directory / "copy") / _MB)
            began = perf_counter()
            states.compact()
            states.wait()
            rates.append(states.size_bytes / (perf_counter() - began) / _MB)
            states.delete()
    return [
        Row(
            "compacting: MB/s of a log whose keys are all there twice, to a copy of its files",
            ratios(rates, copies).text(".4f"),
        ),
        Row("compacting: MB/s", Spread.of(rates).text(".1f")),
    ]


def _copy_s(data: Path, target: Path) -> float:
    """Return the seconds to copy all segments and to sync the copy."""
    began = perf_counter()
    with target.open("wb", buffering=0) as copy:
        for path in sorted(data.rglob("*.log")):
            with path.open("rb", buffering=0) as source:
                while part := source.read(_COPY_BYTES):
                    copy.write(part)
        os.fsync(copy.fileno())
    took_s = perf_counter() - began
    target.unlink()
    return took_s


def _memory(settings: Settings) -> list[Row]:
    """Compact a log with very many keys and one record of each."""
    count = settings.choose(20_000_000, 1_000_000)
    with broker_process(
        settings.directory / "memory",
        log_cleaner_max_bytes_per_second=_UNLIMITED,
        log_cleaner_dedupe_buffer_bytes=str(settings.choose(150, 34) << 20),
        maintenance_interval_ms="100ms",
    ) as server:
        states = _States(server, "states", segment_bytes=_SEGMENT_BYTES)
        states.fill(count, count)
        before_bytes = server.forget_peak()
        states.compact()
        states.wait()
        growth_mb = (server.resident_bytes_peak - before_bytes) / _MB
        round_count = len(_rounds(server))
        states.delete()
    return [
        Row(
            f"compacting: growth of a broker with {count:,} keys in {round_count} rounds, in MB",
            f"{growth_mb:.0f}",
            f"< {_GROWTH_GOAL_MB}",
            growth_mb < _GROWTH_GOAL_MB,
        )
    ]


def _latency(settings: Settings) -> list[Row]:
    """Produce to one topic, with and without compaction of another at the default rate."""
    count = settings.choose(2_000_000, 200_000)
    segment_bytes = settings.choose(_SEGMENT_BYTES, _QUICK_SEGMENT_BYTES)
    quiet: list[float] = []
    busy: list[float] = []
    with broker_process(settings.directory / "latency", maintenance_interval_ms="100ms") as server:
        broker = RawConnection(server.address)
        batches = Batches(broker.create_topic("others"), 1, Acks.ALL, producer_id=0)
        for number in range(settings.choose(5, 2)):
            states = _States(server, f"states-{number}", segment_bytes=segment_bytes)
            states.fill(count, count // 2)
            before = len(_rounds(server))
            measured = [_one(broker, batches) for _ in range(settings.choose(2000, 200))]
            quiet.append(quantiles(measured, n=100)[98])
            states.compact()
            measured.clear()
            while len(_rounds(server)) == before:
                measured.append(_one(broker, batches))
            busy.append(quantiles(measured, n=100)[98])
            states.delete()
        broker.close()
    return [
        Row(
            "compacting: produce, 99 %, while another topic is compacted, to while none is",
            ratios(busy, quiet).text(".2f"),
        ),
        Row("compacting: produce, 99 % in µs, while another topic is", Spread.of(busy).text()),
        Row("compacting: produce, 99 % in µs, while none is", Spread.of(quiet).text()),
    ]


def _one(broker: RawConnection, batches: Batches) -> float:
    """Return the microseconds of one record."""
    began = perf_counter()
    pump(broker.sock, batches.next_frame, 1, depth=1)
    return (perf_counter() - began) * 1e6
