"""The files of one small log, as golden files: a sealed segment, its index, a checkpoint.

The log of partition 3 begins at offset 1000, under the leader of epoch 7. Producer 42 sends
`hello`, which is flushed. It sends `world`, 5 seconds younger, and the segment is sealed. It sends
`again`, which is flushed with a checkpoint.
"""

from collections.abc import Iterator
from typing import cast

import msgpack

from tests.golden.dump import dump_fields, lines, text
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.checkpoint import LogCheckpoint, write_small_file
from tidelog.logstore.config import LogConfig
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.log import PartitionLog
from tidelog.logstore.recovery.recovery import open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE, SegmentHeader
from tidelog.wire.batch.record_batch import (
    Columns,
    encode_batch,
    parse_header,
    stamp_leader,
    stamp_replica,
)

DIRECTORY = "log"
OWNER = SegmentHeader(bytes(range(0xA0, 0xB0)), 3, 1000)
NOW_MS = 1_700_000_010_000
"""Append time of each batch."""
CONFIG = LogConfig(index_interval_bytes=100)
SEALED_AT_MS = NOW_MS + CONFIG.roll_after_ms
RECORDS = (
    (b"hello", 1_700_000_000_000),
    (b"world", 1_700_000_005_000),
    (b"again", 1_700_000_003_000),
)

SEGMENT_HEADER_FIELDS = {
    "magic": (0, "8s"),
    "format_version": (8, "H"),
    "reserved": (10, "H"),
    "topic_id": (12, "16s"),
    "partition": (28, "I"),
    "base_offset": (32, "Q"),
    "reserved ": (40, "20s"),
    "crc": (60, "I"),
}
SEGMENT_FOOTER_FIELDS = {
    "magic": (0, "8s"),
    "end_offset": (8, "Q"),
    "end_position": (16, "Q"),
    "max_timestamp_ms": (24, "q"),
    "sealed_at_ms": (32, "q"),
    "cleaned_at_ms": (40, "Q"),
    "reserved": (48, "12s"),
    "crc": (60, "I"),
}
INDEX_FIELDS = {
    "magic": (0, "4s"),
    "format_version": (4, "H"),
    "reserved": (6, "H"),
    "base_offset": (8, "Q"),
    "count": (16, "I"),
    "crc": (20, "I"),
}
INDEX_PREFIX_SIZE = 24
CHECKPOINT_FIELDS = {
    "magic": (0, "4s"),
    "format_version": (4, "H"),
    "reserved": (6, "H"),
    "length": (8, "I"),
    "crc": (12, "I"),
}
CHECKPOINT_PREFIX_SIZE = 16
CHECKPOINT_CONTENT = (
    "log_start_offset",
    "recovery_offset",
    "recovery_base_offset",
    "recovery_position",
    "max_timestamp_ms",
    "first_append_ms",
    "index",
    "leader_epochs",
    "producers",
    "damage",
    "high_watermark",
    "has_deletion_markers",
    "clean_offset",
)


def log_files() -> dict[str, bytes]:
    """Return the names of the golden files of `logstore` with their present encoding."""
    disk = FaultyDisk()
    _write_log(disk)
    segment = _read(disk, f"{1000:020}.log")
    index = _read(disk, f"{1000:020}.index")
    checkpoint = _read(disk, "checkpoint")
    return {
        "segment_v1.bin": segment,
        "segment_v1.txt": text(_dump_segment(segment)),
        "index_v1.bin": index,
        "index_v1.txt": text(_dump_index(index)),
        "checkpoint_v1.bin": checkpoint,
        "checkpoint_v1.txt": text(_dump_checkpoint(checkpoint)),
    }


def _write_log(disk: Disk) -> None:
    disk.make_directory(DIRECTORY)
    write_small_file(disk, f"{DIRECTORY}/checkpoint", _nothing_before(OWNER.base_offset))
    log, _ = open_log(DIRECTORY, OWNER, FileCache(disk), config=CONFIG, now_ms=NOW_MS)
    _append(log, 0)
    _flush(log)
    _append(log, 1)
    log.roll_if_old(now_ms=SEALED_AT_MS)
    _append(log, 2)
    _flush(log)


def _nothing_before(offset: int) -> LogCheckpoint:
    """Return the checkpoint of an empty log that starts above 0."""
    return LogCheckpoint(
        log_start_offset=offset,
        recovery_offset=offset,
        recovery_base_offset=offset,
        recovery_position=SEGMENT_HEADER_SIZE,
        max_timestamp_ms=0,
        first_append_ms=None,
        index=b"",
        leader_epochs=[],
        producers=[],
        damage=[],
    )


def _append(log: PartitionLog, number: int) -> None:
    value, timestamp_ms = RECORDS[number]
    batch = encode_batch(
        Columns(1, values=[value]),
        first_timestamp_ms=timestamp_ms,
        producer_id=42,
        producer_epoch=3,
        base_sequence=100 + number,
    )
    # Of a producer that its leader knew, and this log does not know.
    stamp_leader(memoryview(batch), base_offset=log.log_end_offset, leader_epoch=7)
    stamp_replica(memoryview(batch), durable_position=0)
    header = parse_header(batch)
    assert header is not None
    log.append_replicated([header], memoryview(batch), now_ms=NOW_MS)


def _flush(log: PartitionLog) -> None:
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.end_flush(flush)


def _read(disk: Disk, name: str) -> bytes:
    file = disk.open(f"{DIRECTORY}/{name}")
    return file.read_at(0, file.size())


def _dump_segment(data: bytes) -> Iterator[str]:
    footer = len(data) - SEGMENT_HEADER_SIZE
    batch_size = (footer - SEGMENT_HEADER_SIZE) // 2
    yield from dump_fields(data, SEGMENT_HEADER_FIELDS)
    for number, offset in enumerate(range(SEGMENT_HEADER_SIZE, footer, batch_size)):
        meaning = f"record batch at offset {1000 + number}"
        yield from lines(offset, data[offset : offset + batch_size], meaning)
    yield from dump_fields(data, SEGMENT_FOOTER_FIELDS, start=footer)


def _dump_index(data: bytes) -> Iterator[str]:
    yield from dump_fields(data, INDEX_FIELDS)
    start = INDEX_PREFIX_SIZE
    count = (len(data) - start) // 16
    columns = {
        "relative_offsets": (start, f"{count}I"),
        "positions": (start + 4 * count, f"{count}I"),
        "max_timestamps_before_ms": (start + 8 * count, f"{count}q"),
    }
    yield from dump_fields(data, columns)


def _dump_checkpoint(data: bytes) -> Iterator[str]:
    yield from dump_fields(data, CHECKPOINT_FIELDS)
    offset = CHECKPOINT_PREFIX_SIZE
    content = cast("list[object]", msgpack.unpackb(data[offset:]))
    yield from lines(offset, data[offset : offset + 1], f"array of {len(content)} fields")
    offset += 1
    for name, value in zip(CHECKPOINT_CONTENT, content, strict=True):
        packed = msgpack.packb(value)
        assert data[offset : offset + len(packed)] == packed
        shown = f"{len(value)} bytes" if isinstance(value, bytes) else value
        yield from lines(offset, packed, f"{name} = {shown}")
        offset += len(packed)
    assert offset == len(data)
