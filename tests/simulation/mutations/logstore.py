"""Mutations of a partition's log: bytes on disk, and recovery."""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

import tidelog.logstore.segments.batch_scanner
import tidelog.logstore.segments.segment_list
from tests.simulation.machine.faulty_disk import FaultyFile
from tests.simulation.mutations.mutation import Mutation
from tidelog.logstore.checkpoint import CHECKPOINT_NAME, LogCheckpoint, write_small_file
from tidelog.logstore.disk.availability import Availability
from tidelog.logstore.disk.disk import DISK_FULL_ERRNOS, Disk, File
from tidelog.logstore.flush import FlushJob, FlushState, FlushWork
from tidelog.logstore.log import PartitionLog
from tidelog.logstore.producer_state import ProducerState, ProducerStates
from tidelog.logstore.recovery.torn_tail import TornTailScan
from tidelog.logstore.retention.retention import deletable_count
from tidelog.logstore.segments.batch_scanner import FileWindow
from tidelog.logstore.segments.log_position import LogPosition
from tidelog.logstore.segments.log_slice import LogSlice, out_of_range
from tidelog.logstore.segments.offset_index import OffsetIndex
from tidelog.logstore.segments.segment import Segment
from tidelog.logstore.segments.segment_list import SegmentList
from tidelog.wire.batch.record_batch import _HEADER, HEADER_SIZE, SYNC_MARKER, BatchHeader
from tidelog.wire.errors import DiskFullError, OutOfOrderSequenceError


def _sync_files_only(self: FlushJob) -> None:
    for file in self.work.files.values():
        file.sync()
    if self.work.checkpoint is not None:
        path = f"{self._directory}/{CHECKPOINT_NAME}"
        # Patch nothing while this waits: other threads would call the patched function, too.
        disk = cast("Disk", _WithoutDirectorySync(self._disk))
        write_small_file(disk, path, self.work.checkpoint)


class _WithoutDirectorySync:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def sync_directory(self, path: str) -> None:
        del path

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever a disk can do)
        return getattr(self._disk, name)


_flush = FlushJob._run


def _checkpoint_first(self: FlushJob) -> None:
    if self.work.checkpoint is not None:
        write_small_file(self._disk, f"{self._directory}/{CHECKPOINT_NAME}", self.work.checkpoint)
    for file in self.work.files.values():
        file.sync()
    self._disk.sync_directory(self._directory)


_next_work = FlushState._next_work


def _defer_due_checkpoint(self: FlushState, end: LogPosition, **wanted: Any) -> FlushWork | None:  # noqa: ANN401
    if wanted["may_defer_checkpoint"]:
        self._is_checkpoint_useful |= self.is_checkpoint_due
        self.is_checkpoint_due = False
    return _next_work(self, end, **wanted)


def _flush_with_retry(self: FlushJob) -> None:
    try:
        _flush(self)
    except OSError:
        _flush(self)


def _claim_to_flush(self: FlushJob) -> None:
    self.is_done = True


_end_flush = PartitionLog.end_flush


def _end_flush_at_the_end(self: PartitionLog, flush: FlushJob) -> None:
    _end_flush(self, flush)
    if self._availability.failure is None:
        self._flush_state.durable = self._segments.end


def _header_without_crc(buffer: Any, position: int = 0) -> BatchHeader | None:  # noqa: ANN401
    if position + HEADER_SIZE > len(buffer):
        return None
    header = BatchHeader(*_HEADER.unpack_from(buffer, position))
    return header if header.sync_marker == SYNC_MARKER else None


def _is_torn_always(*_: object) -> bool:
    return False


def _is_followed(_: TornTailScan, __: int, behind: object) -> bool:
    return behind is not None


_batches = TornTailScan.batches


def _batches_but_the_last(self: TornTailScan) -> Iterator[tuple[int, BatchHeader]]:
    last = None
    for batch in _batches(self):
        if last is not None:
            yield last
        last = batch
    if last is None:
        return
    if self.is_torn:
        self.end_position = last[0]
    else:
        yield last


_append = Segment.append


def _append_full(
    self: Segment, header: BatchHeader, batch: memoryview, *, base_offset: int
) -> File:
    try:
        return _append(self, header, batch, base_offset=base_offset)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        self.take_in(header, self.end_position, base_offset=base_offset)
        return self.file()


def _forget_producers(self: ProducerStates, snapshots: object = ()) -> None:
    del snapshots
    self._producers = {}


def _roll_new_only(self: PartitionLog, *, now_ms: int) -> None:
    self._segments.roll(self.config, now_ms=now_ms)
    new = self._segments.active
    self._flush_state._dirty_files.clear()
    self._flush_state.mark_dirty(new.path, new.file())
    self._flush_state.mark_dir_dirty()
    self._flush_state.on_roll()


def _index_without_crc(
    cls: type[OffsetIndex], data: bytes, *, base_offset: int, interval_bytes: int
) -> OffsetIndex | None:
    if len(data) < 28:
        return None
    count = (len(data) - 28) // 16
    index = cls(base_offset=base_offset, interval_bytes=interval_bytes)
    body = data[28:]
    index._offsets.frombytes(body[: count * 4])
    index._positions.frombytes(body[count * 4 : count * 8])
    index._max_timestamps.frombytes(body[count * 8 : count * 16])
    return index


def _all_durable(self: FlushState, segment: Segment) -> int:
    del self
    return segment.end_position


def _load_without_check(self: LogSlice) -> LogSlice:
    self._is_trusted = True
    return self


def _keep_tail(self: Segment) -> None:
    del self


_fail = PartitionLog.fail


def _fail_never(self: PartitionLog, reason: str, *, durable_intact: bool = False) -> None:
    if not reason.startswith("fsync"):
        _fail(self, reason, durable_intact=durable_intact)
        return
    flush = self._flush_state._job
    if flush is not None:
        flush.is_done = True
        self.end_flush(flush)


_floor = OffsetIndex.floor


def _floor_of_the_next(self: OffsetIndex, offset: int) -> tuple[int, int] | None:
    place = _floor(self, offset)
    if place is None:
        return None
    after = self.ceiling_position(place[1] + 1)
    return place if after is None else (place[0], after)


_before_time = OffsetIndex.before_time


def _before_time_of_the_next(self: OffsetIndex, timestamp_ms: int) -> tuple[int, int] | None:
    place = _before_time(self, timestamp_ms)
    if place is None:
        return None
    after = self.ceiling_position(place[1] + 1)
    return place if after is None else (place[0], after)


_take_in = Segment.take_in


def _take_in_last_time(
    self: Segment, header: BatchHeader, position: int, *, base_offset: int
) -> None:
    _take_in(self, header, position, base_offset=base_offset)
    self.max_timestamp_ms = header.max_timestamp_ms


_snapshot = ProducerStates.snapshot


def _snapshot_without_the_last(self: ProducerStates) -> list[ProducerState]:
    return [
        msgspec.structs.replace(producer, window=producer.window[:-1])
        for producer in _snapshot(self)
    ]


_check = ProducerStates.check


def _check_without_gaps(self: ProducerStates, header: BatchHeader) -> int | None:
    try:
        return _check(self, header)
    except OutOfOrderSequenceError:
        return None


_make_checkpoint = PartitionLog._make_checkpoint


def _checkpoint_without_start(self: PartitionLog) -> LogCheckpoint:
    return msgspec.structs.replace(_make_checkpoint(self), log_start_offset=0)


def _no_batches(_: TornTailScan) -> Iterator[tuple[int, BatchHeader]]:
    return iter(())


def _deletable_anywhere(sealed: Any, **facts: Any) -> int:  # noqa: ANN401  (passed on)
    facts["high_watermark"] = 1 << 62
    return deletable_count(sealed, **facts)


_read_segments = SegmentList.read


def _read_from_the_start(self: SegmentList, offset: int, *given: Any, **limits: Any) -> Any:  # noqa: ANN401  (passed on)
    return _read_segments(self, max(offset, self.base_offset), *given, **limits)


def _require_below_the_end(self: PartitionLog, offset: int) -> None:
    if offset > self.log_end_offset:
        raise out_of_range(offset, self.log_start_offset, self.log_end_offset)


def _do_nothing(*_: object) -> None:
    """Skip the work."""


def _say_yes(*_: object) -> bool:
    return True


_require_room = Availability.require_room


def _require_a_restart(
    self: Availability, size_bytes: int, *, may_use_reserve: bool = True
) -> None:
    if self.is_disk_full:
        raise DiskFullError("once full, always full")
    _require_room(self, size_bytes, may_use_reserve=may_use_reserve)


MUTATIONS: Final = (
    Mutation(
        "ack-before-fsync",
        "the durable end is the log end",
        (PartitionLog, "durable_end_offset", property(lambda log: log.log_end_offset)),
    ),
    Mutation(
        "flush-does-nothing", "a flush is done without a sync", (FlushJob, "_run", _claim_to_flush)
    ),
    Mutation(
        "no-directory-sync",
        "names of new segments are not made durable",
        (FlushJob, "_run", _sync_files_only),
    ),
    Mutation(
        "checkpoint-first",
        "the checkpoint is written before its records are on disk",
        (FlushJob, "_run", _checkpoint_first),
    ),
    Mutation(
        "due-checkpoint-left",
        "the broker does not wait for a required checkpoint",
        (FlushState, "_next_work", _defer_due_checkpoint),
    ),
    Mutation("retry-fsync", "a failed fsync is tried again", (FlushJob, "_run", _flush_with_retry)),
    Mutation(
        "ignore-fsync-error", "a failed fsync counts as done", (PartitionLog, "fail", _fail_never)
    ),
    Mutation(
        "trust-page-cache",
        "a start believes the page cache, also after a failed fsync",
        (FaultyFile, "drop_cache", _do_nothing),
    ),
    Mutation(
        "ack-overtakes-fsync",
        "a flush covers records appended while it ran",
        (PartitionLog, "end_flush", _end_flush_at_the_end),
    ),
    Mutation(
        "truncate-at-first-bad",
        "every bad batch is a torn tail",
        (TornTailScan, "_was_durable", _is_torn_always),
    ),
    Mutation(
        "good-behind-bad-is-proof",
        "a valid batch behind a bad one proves damage",
        (TornTailScan, "_was_durable", _is_followed),
    ),
    Mutation(
        "skip-header-crc",
        "recovery and reads do not check the CRC of headers",
        (tidelog.logstore.segments.batch_scanner, "parse_header", _header_without_crc),
    ),
    Mutation(
        "skip-payload-crc",
        "recovery and reads do not check payloads",
        (FileWindow, "_has_payload", _say_yes),
    ),
    Mutation(
        "serve-unchecked",
        "cold reads are sent without a check",
        (LogSlice, "load", _load_without_check),
    ),
    Mutation(
        "trust-index",
        "an index is trusted without its CRC",
        (OffsetIndex, "from_bytes", classmethod(_index_without_crc)),
    ),
    Mutation(
        "forget-producers",
        "a start ignores the producers in the checkpoint",
        (ProducerStates, "__init__", _forget_producers),
    ),
    Mutation(
        "no-dedup",
        "batches that are sent again are appended again",
        (ProducerStates, "check", _do_nothing),
    ),
    Mutation(
        "reuse-offset",
        "the truncation of a torn tail removes the last good batch",
        (TornTailScan, "batches", _batches_but_the_last),
    ),
    Mutation(
        "full-disk-swallowed",
        "an append that failed for lack of space counts as done",
        (Segment, "append", _append_full),
    ),
    Mutation(
        "read-only-until-restart",
        "a log that found the disk full does not check for space again",
        (Availability, "require_room", _require_a_restart),
    ),
    Mutation(
        "roll-forgets-old-segment",
        "unsynced bytes of a segment are forgotten when it is rolled",
        (PartitionLog, "_roll", _roll_new_only),
    ),
    Mutation(
        "stamp-lies",
        "batches are stamped with a position that is not durable",
        (FlushState, "durable_position_in", _all_durable),
    ),
    Mutation(
        "torn-tail-left",
        "a torn tail is not truncated",
        (Segment, "cut_file", _keep_tail),
    ),
    Mutation(
        "index-off-by-one",
        "a read begins at the index entry behind the one it should begin at",
        (OffsetIndex, "floor", _floor_of_the_next),
    ),
    Mutation(
        "time-off-by-one",
        "a search for a time begins at the index entry behind the one it should begin at",
        (OffsetIndex, "before_time", _before_time_of_the_next),
    ),
    Mutation(
        "times-taken-to-rise",
        "the last timestamp of a segment is used as its largest",
        (Segment, "take_in", _take_in_last_time),
    ),
    Mutation(
        "stale-producers",
        "a checkpoint leaves out the last batch of every producer",
        (ProducerStates, "snapshot", _snapshot_without_the_last),
    ),
    Mutation(
        "gap-accepted",
        "a batch behind a sequence gap is appended",
        (ProducerStates, "check", _check_without_gaps),
    ),
    Mutation(
        "old-epoch-accepted",
        "a batch with an old producer epoch is appended",
        (ProducerStates, "_check_new_epoch", staticmethod(_do_nothing)),
    ),
    Mutation(
        "full-disk-is-broken",
        "a log without space for a batch goes offline",
        (Availability, "write_failed", Availability.failed),
    ),
    Mutation(
        "start-forgotten",
        "a checkpoint lacks the log start offset",
        (PartitionLog, "_make_checkpoint", _checkpoint_without_start),
    ),
    Mutation(
        "no-scan",
        "a start ignores bytes behind the checkpoint",
        (TornTailScan, "batches", _no_batches),
    ),
    Mutation(
        "retention-too-eager",
        "retention deletes above the high watermark and the checkpoint",
        (tidelog.logstore.segments.segment_list, "deletable_count", _deletable_anywhere),
    ),
    Mutation(
        "read-deleted",
        "an offset below the log start returns the next records",
        (PartitionLog, "_require_held", _require_below_the_end),
        (SegmentList, "read", _read_from_the_start),
    ),
)
"""Mutations of the log."""
