"""Logs for tests: a small one on the faulty disk, and what is in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.config import LogConfig
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.flush import FlushJob
from tidelog.logstore.log import Appended, PartitionLog
from tidelog.logstore.recovery.recovery import RecoveryReport, open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment import segment_path
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE, SegmentHeader
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import (
    BatchHeader,
    Columns,
    check_produced,
    encode_batch,
    parse_header,
    stamp_leader,
    stamp_replica,
)
from tidelog.wire.errors import CorruptRecordError

TOPIC_ID = b"topic-of-flights"
OWNER = SegmentHeader(TOPIC_ID, 3, 0)
DIRECTORY = "flights/3"
CHECKPOINT = f"{DIRECTORY}/checkpoint"
NOW_MS = 1_700_000_000_000
SMALL = LogConfig(
    segment_bytes=4096, index_interval_bytes=512, max_message_bytes=2048, checkpoint_bytes=1 << 30
)
"""Segments of some 25 small batches; checkpoints only on request."""


@dataclass(frozen=True, slots=True)
class Producer:
    """An idempotent producer at one sequence."""

    producer_id: int = 0
    epoch: int = 0
    sequence: int = 0


def batch_of(
    values: Sequence[bytes], *, timestamp_ms: int = NOW_MS, producer: Producer | None = None
) -> bytearray:
    """Return a batch as a producer sends it."""
    producer = producer or Producer()
    return encode_batch(
        Columns(len(values), values=list(values)),
        first_timestamp_ms=timestamp_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
    )


def header_of(
    values: Sequence[bytes] = (b"",),
    *,
    timestamp_ms: int = NOW_MS,
    producer: Producer | None = None,
) -> BatchHeader:
    """Return the header of such a batch."""
    batch = batch_of(values, timestamp_ms=timestamp_ms, producer=producer)
    return check_produced(memoryview(batch))


def stored(
    values: Sequence[bytes],
    *,
    base_offset: int,
    leader_epoch: int = 0,
    durable_position: int = 0,
    timestamp_ms: int = NOW_MS,
) -> bytes:
    """Return a stored batch."""
    batch = memoryview(batch_of(values, timestamp_ms=timestamp_ms))
    stamp_leader(batch, base_offset=base_offset, leader_epoch=leader_epoch)
    stamp_replica(batch, durable_position=durable_position)
    return bytes(batch)


@dataclass(slots=True)
class Opened:
    """An open log, its recovery report, and its disk."""

    disk: FaultyDisk
    log: PartitionLog
    report: RecoveryReport
    config: LogConfig

    def append(
        self,
        *values: bytes,
        producer: Producer | None = None,
        leader_epoch: int = 0,
        timestamp_ms: int = NOW_MS,
        now_ms: int = NOW_MS,
    ) -> Appended:
        """Append one batch."""
        batch = memoryview(batch_of(values, timestamp_ms=timestamp_ms, producer=producer))
        header = check_produced(batch)
        return self.log.append(batch, header, leader_epoch=leader_epoch, now_ms=now_ms)

    def append_many(self, count: int, *, size: int = 20, flush_every: int | None = None) -> None:
        """Append `count` batches of one record whose value begins with its offset."""
        for number in range(count):
            self.append(numbered(self.log.log_end_offset, size))
            if flush_every is not None and (number + 1) % flush_every == 0:
                self.flush()

    def flush(self, *, checkpoint: bool = False) -> None:
        """Flush the log, with a checkpoint if requested."""
        if checkpoint:
            self.log.request_checkpoint()
        while (flush := self.log.begin_flush()) is not None:
            run(self.log, flush)

    def kill(self) -> "Opened":
        """End the process and open the log again."""
        return reopen(self.disk.kill(), self.config)

    def cut_power(self, seed: int, *, are_names_in_order: bool = True) -> "Opened":
        """Cut the power and open the log again after the next boot."""
        disk = self.disk.power_cut(Random(seed), are_names_in_order=are_names_in_order)
        return reopen(disk, self.config)

    def path(self, base_offset: int = 0) -> str:
        """Return the path of a segment."""
        return segment_path(DIRECTORY, base_offset)

    def segment_bases(self) -> list[int]:
        """Return the base offsets of the segment files."""
        names = self.disk.list_directory(DIRECTORY)
        return [int(name[:20]) for name in names if name.endswith(".log")]


def run(log: PartitionLog, flush: FlushJob) -> None:
    """Run one flush."""
    flush.run()
    log.end_flush(flush)


def new_log(config: LogConfig = SMALL, *, disk: FaultyDisk | None = None) -> Opened:
    """Return an empty log."""
    return reopen(disk or FaultyDisk(), config)


def reopen(
    disk: FaultyDisk, config: LogConfig = SMALL, *, now_ms: int = NOW_MS, checks_end: bool = False
) -> Opened:
    """Open the log that is on a disk."""
    log, report = open_log(
        DIRECTORY, OWNER, FileCache(disk), config=config, now_ms=now_ms, checks_end=checks_end
    )
    return Opened(disk, log, report, config)


def numbered(offset: int, size: int = 20) -> bytes:
    """Return a value that names its offset."""
    return b"%08d" % offset + b"." * (size - 8)


def records_in(data: bytes) -> dict[int, bytes]:
    """Return the records of whole batches, by offset."""
    found: dict[int, bytes] = {}
    view = memoryview(data)
    while view:
        header = parse_header(view)
        assert header is not None, "a slice holds whole batches only"
        columns = decode_columns(header, view[: header.size], uncompressed_length_max=1 << 30)
        assert columns.values is not None or not columns.record_count
        deltas = columns.offset_deltas or range(columns.record_count)
        for delta, value in zip(deltas, columns.values or (), strict=True):
            assert value is not None
            found[header.base_offset + delta] = value
        view = view[header.size :]
    return found


def read_all(
    log: PartitionLog, *, high_watermark: int | None = None, max_bytes: int = 1000
) -> dict[int, bytes]:
    """Return all records from the start on, as a consumer that skips damage sees them."""
    end = log.log_end_offset if high_watermark is None else high_watermark
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < end:
        try:
            part = log.read(offset, max_bytes=max_bytes, high_watermark=end)
            assert part is not None
            records = records_in((part if part.is_ready() else part.load()).read())
        except CorruptRecordError as error:
            offset = behind(error, offset)
            continue
        assert max(records) >= offset, "a slice holds the requested offset, or the next one"
        found |= {at: value for at, value in records.items() if at >= offset}
        offset = max(records) + 1
    return found


def expected(start: int, end: int, size: int = 20) -> dict[int, bytes]:
    """Return the records of `append_many` from `start` to `end` (exclusive)."""
    return {offset: numbered(offset, size) for offset in range(start, end)}


def behind(error: CorruptRecordError, offset: int) -> int:
    """Return the next readable offset after damage at `offset`."""
    assert error.offset == offset
    assert error.next_offset is not None
    assert error.next_offset > offset
    return error.next_offset


def batch_bounds(data: bytes) -> list[int]:
    """Return the positions of the batches in a segment, and the end of the last one."""
    bounds = [SEGMENT_HEADER_SIZE]
    while (header := parse_header(data, bounds[-1])) is not None:
        bounds.append(bounds[-1] + header.size)
    return bounds


def name_of(base_offset: int, suffix: str = ".log") -> str:
    """Return the name of a segment's file."""
    return f"{base_offset:020}{suffix}"


Image = dict[str, bytes]
"""All files of a log, by name."""


def image_of(disk: Disk) -> Image:
    """Return the files of the log on a disk."""
    image: Image = {}
    for name in disk.list_directory(DIRECTORY):
        file = disk.open(f"{DIRECTORY}/{name}")
        image[name] = file.read_at(0, file.size())
    return image


def disk_of(image: Image) -> FaultyDisk:
    """Return a disk on which these files are durable."""
    disk = FaultyDisk()
    disk.make_directory(DIRECTORY)
    for name, data in image.items():
        file = disk.open(f"{DIRECTORY}/{name}", create=True)
        file.write_at(0, [data])
        file.sync()
    for directory in ("", *DIRECTORY.split("/")[:-1], DIRECTORY):
        disk.sync_directory(directory)
    return disk
