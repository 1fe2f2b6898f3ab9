"""One partition's log: an append-only sequence of record batches on one disk.

Synchronous. Appends go to the page cache and return at once; `begin_flush` returns the blocking
part of the flush, which a shell runs elsewhere. `logstore.recovery.recovery` opens a log;
`logstore.segments.segment_list` locates offsets and times.
"""

from collections.abc import Sequence
from typing import Final, final

import msgspec

from tidelog.logstore.batch_cipher import BatchCipher
from tidelog.logstore.checkpoint import CHECKPOINT_NAME, LogCheckpoint, write_small_file
from tidelog.logstore.compaction.cleaner_state import CleanerState
from tidelog.logstore.config import LogConfig
from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.disk.availability import CLOSED, Availability, LogStatus
from tidelog.logstore.disk.disk import PASSING_ERRNOS
from tidelog.logstore.flush import FlushJob, FlushState
from tidelog.logstore.idle_log import IdleLog
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.producer_state import ProducerStates
from tidelog.logstore.range_repair import RangeRepair, check_repair
from tidelog.logstore.retention.retention import LogSummary, next_change_ms, require_committed
from tidelog.logstore.segments.batch_run import stamp_run
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.log_slice import LogSlice, out_of_range
from tidelog.logstore.segments.segment_deletion import SegmentDeletion, remove_markers_above
from tidelog.logstore.segments.segment_list import SegmentList
from tidelog.logstore.segments.segment_scrub import SegmentScrub
from tidelog.wire.batch.record_batch import BatchHeader, stamp_appended
from tidelog.wire.errors import CorruptRecordError
from tidelog.wire.messages.produce import STAGED_PRODUCER_ID

__all__ = ["Appended", "LogState", "LogStatus", "PartitionLog"]

_IDLE_SEALED_MAX: Final = 8
"""Maximum number of sealed segments of a log that may stay closed."""


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Offsets of an appended batch."""

    base_offset: int
    next_offset: int
    """Offset after its last record."""
    is_duplicate: bool
    """Whether the log had the batch already."""


class LogState(msgspec.Struct, frozen=True):
    """State that `logstore.recovery.recovery` passes to a log; all of it is on disk."""

    segments: SegmentList
    log_start_offset: int
    leader_epochs: LeaderEpochs
    producers: ProducerStates
    checkpoint_base_offset: int
    """Base offset below which segments are fully on disk, according to the checkpoint on disk."""
    is_checkpoint_due: bool
    """Whether the checkpoint on disk lacks something that recovery found."""
    dir_sync_pending: bool
    """Whether a power failure may still lose names in the directory, the checkpoint's too."""
    high_watermark: int = 0
    """Exclusive end of the records known to be committed; more may be."""
    clean_offset: int = 0
    """Compaction checkpoint."""


@final
class PartitionLog:
    """An append-only sequence of record batches.

    Invariant: durable_end_offset <= log_end_offset and log_start_offset <= log_end_offset;
    an assigned offset is never assigned again, except after `truncate`.
    """

    def __init__(
        self, directory: str, files: FileCache, config: LogConfig, *, state: LogState
    ) -> None:
        """Start with the state that recovery found in `directory`; all of it is on disk."""
        self.directory = directory
        self._files = files
        self.config = config
        """May be replaced at any time; the new limits hold from the next call on."""
        self.cipher: BatchCipher | None = None
        """Keys of the topic; `None` while it has none, and all of its batches are plain."""
        self._segments = state.segments
        self.log_start_offset = state.log_start_offset
        """First readable offset; to be read only."""
        self.leader_epochs = state.leader_epochs
        self.high_watermark = state.high_watermark
        """Exclusive end of committed records; the replica sets it, and checkpoints keep it."""
        self.producers = state.producers
        self._availability = Availability(directory, files.disk)
        self._flush_state = FlushState(
            files.disk,
            directory,
            self._availability,
            durable=self._segments.end,
            checkpoint_base_offset=state.checkpoint_base_offset,
            is_checkpoint_due=state.is_checkpoint_due,
            dir_sync_pending=state.dir_sync_pending,
            high_watermark=state.high_watermark,
        )
        self.cleaner = CleanerState(
            directory,
            files,
            self._segments,
            flush_state=self._flush_state,
            clean_offset=state.clean_offset,
        )

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record (exclusive end)."""
        return self._segments.active.end_offset

    @property
    def durable_end_offset(self) -> int:
        """Offset below which all records are on disk (exclusive end)."""
        return self._flush_state.durable.offset

    @property
    def bytes_since_checkpoint(self) -> int:
        """Bytes that a start after a crash would scan."""
        return self._flush_state.bytes_since_checkpoint

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        """Number of segments, the active one included."""
        return len(self._segments)

    def summary(self, *, now_ms: int) -> LogSummary:
        """Return a summary of the segments, without access to the disk."""
        return self._segments.summary(now_ms=now_ms)

    @property
    def status(self) -> LogStatus:
        """Status of the log."""
        return self._availability.status(has_damage=bool(self._segments.damage))

    @property
    def is_whole(self) -> bool:
        """Whether the log can be read and written, and no damage is known."""
        availability = self._availability
        is_usable = availability.failure is None and not availability.is_disk_full
        return is_usable and not self._segments.damage.ranges

    @property
    def is_idle(self) -> bool:
        """Whether the log is online and nothing of it changes as time passes."""
        return self._segments.is_idle and not self.producers and self.status is LogStatus.ONLINE

    @property
    def durable_intact(self) -> bool:
        """Whether all records below the durable end are intact on disk, as far as is known."""
        return self._availability.durable_intact and not self._segments.damage

    def append(
        self, batch: memoryview, header: BatchHeader, *, leader_epoch: int, now_ms: int
    ) -> Appended:
        """Append one checked batch as the leader; not durable before a flush.

        `batch` is stamped in place. An error means that nothing was written.

        Raises:
            RecordTooLargeError: The batch is larger than `max_message_bytes`.
            PartitionFullError: The log would be larger than `max_partition_bytes`.
            OutOfOrderSequenceError: A batch of this producer is missing before it.
            DuplicateSequenceError: It was appended before; its offset is not known any more.
            FencedProducerError: A newer epoch of this producer has written.
            OverloadedError: Too many producers wrote recently to track another one.
            KeyUnavailableError: The topic is encrypted, and has no key that can be used here.
            DiskFullError: There is no room; a later append may succeed.
            LogOfflineError: The disk failed.
        """
        availability, config, segments = self._availability, self.config, self._segments
        size = len(batch)
        is_staged = header.producer_id == STAGED_PRODUCER_ID  # The staging log has checked it.
        is_too_large = size > config.max_message_bytes and not is_staged
        if availability.failure is not None or is_too_large:
            availability.require_online()
            raise config.too_large(size)
        known_at = self.producers.admit(header, now_ms=now_ms) if header.producer_id else None
        if known_at is not None:
            return Appended(known_at, known_at + header.last_offset_delta + 1, True)
        if config.max_partition_bytes is not None and not is_staged:
            config.require_room(size, self.size_bytes)
        latest_epoch = self.leader_epochs.latest
        assert latest_epoch is None or leader_epoch >= latest_epoch, f"epoch {leader_epoch} is over"
        base_offset = segments.active.end_offset
        next_offset = base_offset + header.last_offset_delta + 1
        if self.cipher is not None:
            batch, header = self.cipher.seal(
                batch, header, base_offset=base_offset, leader_epoch=leader_epoch
            )
            size = len(batch)
        try:
            if availability.is_disk_full:
                availability.require_room_to_append(size)
            if segments.must_roll(size, next_offset, config):
                self._roll(now_ms=now_ms)
            active = segments.active
            stamp_appended(
                batch,
                base_offset=base_offset,
                leader_epoch=leader_epoch,
                durable_position=self._flush_state.durable_position_in(active),
            )
            file = active.append(header, batch, base_offset=base_offset)
            self._flush_state.mark_dirty(active.path, file, size)
        except OSError as error:
            availability.write_failed("writing", error, durable_intact=True)
        if active.first_append_ms is None:
            active.first_append_ms = now_ms
        if latest_epoch != leader_epoch:
            self.leader_epochs.assign(leader_epoch, base_offset)
        self.producers.appended(header, base_offset, now_ms=now_ms)
        return Appended(base_offset, next_offset, False)

    def append_replicated(
        self, headers: Sequence[BatchHeader], batches: memoryview, *, now_ms: int
    ) -> None:
        """Append a leader's batches as a follower; not durable before a flush.

        `check_run` has checked them. They keep their offsets and epochs; this replica stamps its
        fields in place. After an error some of them may have been appended, as whole batches.

        Raises:
            DiskFullError: There is no room; a later append may succeed.
            LogOfflineError: The disk failed.
        """
        self.require_online()
        while headers:
            try:
                if self._availability.is_disk_full:
                    self._availability.require_room_to_append(len(batches))
                if self._segments.must_roll(headers[0].size, headers[0].next_offset, self.config):
                    self._roll(now_ms=now_ms)
                active = self._segments.active
                run = headers[: self._segments.count_fitting(headers, self.config)]
                size = sum(header.size for header in run)
                durable_position = self._flush_state.durable_position_in(active)
                stamp_run(run, batches[:size], durable_position=durable_position)
                file = active.append_run(run, batches[:size])
                self._flush_state.mark_dirty(active.path, file, size)
            except OSError as error:
                self._availability.write_failed("writing", error, durable_intact=True)
            if active.first_append_ms is None:
                active.first_append_ms = now_ms
            for header in run:
                self.leader_epochs.assign(header.leader_epoch, header.base_offset)
                self.producers.appended(header, header.base_offset, now_ms=now_ms)
            headers, batches = headers[len(run) :], batches[size:]

    def read(self, offset: int, *, max_bytes: int, high_watermark: int) -> LogSlice | None:
        """Return the slice with batches from `offset` on, `None` when there are none yet.

        It has whole batches below the high watermark: at least one, and otherwise about `max_bytes`
        at most. The first may begin below `offset`.

        Raises:
            OffsetOutOfRangeError: The offset was deleted or lies beyond the end.
            CorruptRecordError: The record at `offset` is known to be damaged.
            LogOfflineError: The disk failed.
        """
        self.require_online()
        self._require_held(offset)
        if offset >= high_watermark:
            return None
        try:
            return self._segments.read(
                offset, self.config, max_bytes=max_bytes, high_watermark=high_watermark
            )
        except OSError as error:
            self._availability.read_failed("reading", error)

    def find_time(self, timestamp_ms: int, *, high_watermark: int) -> LogSlice | None:
        """Return the batch that holds the first record at or after a time, `None` if none does.

        The result is right also if timestamps are not in order. Reads headers only.

        Raises:
            CorruptRecordError: Damaged records before it may have such a timestamp.
            LogOfflineError: The disk failed.
        """
        self.require_online()
        try:
            return self._segments.find_time(
                timestamp_ms,
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=high_watermark,
            )
        except OSError as error:
            self._availability.read_failed("reading", error)

    def offset_before(self, timestamp_ms: int) -> int:
        """Return the offset at which to search for records of a time; see `SegmentList`."""
        return self._segments.offset_before(timestamp_ms, self.config)

    def note_damage(self, error: CorruptRecordError) -> None:
        """Add damage that a reader found, so that it is reported and not searched again."""
        offset, end_offset = error.detail("offset"), error.detail("next_offset")
        assert offset is not None and end_offset is not None  # noqa: PT018
        if self._segments.damage.add(max(offset, self.log_start_offset), end_offset):
            self.cleaner.abort()
            self._flush_state.request_checkpoint()

    @property
    def damage(self) -> tuple[DamagedRange, ...]:
        """Records that are known to be damaged or lost, lowest first."""
        return tuple(self._segments.damage)

    def repair_range(
        self, offset: int, end_offset: int, batches: memoryview, *, now_ms: int
    ) -> None:
        """Replace the damage from `offset` to `end_offset` by `batches`, durably; blocks.

        The batches come from another replica, whole and consecutive. The first may begin below
        `offset`, and the last end above `end_offset`. They are checked, and must agree with the
        intact batches here. Repair the lowest damage first, some MiB at a time. No flush may be
        running. A crash during the repair leaves the known damage unchanged. The repair adds
        further damage that it finds around them.

        Raises:
            CorruptBatchError: A checksum is wrong. Nothing has changed; so for the next two.
            InvalidBatchError: They do not fit the damage, or more is damaged, see `damage` then.
            OffsetOutOfRangeError: The offsets are not in the log (any more).
            CorruptRecordError: The disk lost the written bytes; the damage is unchanged.
            DiskFullError: There is no room; the damage stays known.
            LogOfflineError: The disk failed.
        """
        self._flush_state.settle()
        self.require_online()
        self._require_held(offset)
        self._require_held(end_offset)
        checked = check_repair(batches, offset=offset, end_offset=end_offset)
        self._require_held(checked.end_offset)
        repair = RangeRepair(
            self._segments, self.leader_epochs, self._files, config=self.config, now_ms=now_ms
        )
        try:
            repair.plan(checked)
            self._availability.require_room(repair.size_bytes)
            self._flush_all()
            self.cleaner.abort(clean_offset_max=0)  # Repaired records may be superseded.
            repair.run(self.directory)
            repair.settle(checked)
            self.producers.learn(checked.headers, now_ms=now_ms)
            self._flush_state.request_checkpoint()
            self._flush_all()
        except OSError as error:
            self._availability.write_failed("repairing", error)

    def begin_scrub(self, *, from_offset: int) -> SegmentScrub | None:
        """Return the scrub of the first durable segment at or above `from_offset`.

        `None` if there is none, or the log is offline.

        Raises:
            OSError: The disk failed.
        """
        if self._availability.failure is not None:
            return None
        return self._segments.begin_scrub(from_offset, self._flush_state.durable)

    def begin_flush(self, *, may_defer_checkpoint: bool = False) -> FlushJob | None:
        """Return the job that makes all appended records durable, `None` if they are.

        Pass it to `end_flush` after its run, or call `fail` if it failed. One flush runs at a time.
        After a flush that may defer its checkpoint call `begin_checkpoint`. While that checkpoint
        is written, no flush may begin if a checkpoint `is_checkpoint_due`.
        """
        return self._flush_state.begin(
            self._segments.end,
            checkpoint_bytes=self.config.checkpoint_bytes,
            make_checkpoint=self._make_checkpoint,
            may_defer_checkpoint=may_defer_checkpoint,
        )

    def end_flush(self, flush: FlushJob) -> None:
        """Move the durable end to the end of `flush`, which has run."""
        self._flush_state.end(flush)

    def begin_checkpoint(self) -> FlushJob | None:
        """Return the job that writes the deferred checkpoint, `None` without one.

        Flushes may run meanwhile. Pass it to `end_checkpoint` after its run, or call `fail`.
        """
        return self._flush_state.begin_checkpoint()

    def end_checkpoint(self, checkpoint: FlushJob) -> None:
        """Apply the checkpoint that the job `checkpoint` has written."""
        self._flush_state.end_checkpoint(checkpoint)

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether the next flush writes a checkpoint, before which some state is not durable."""
        return self._flush_state.is_checkpoint_due

    @property
    def is_checkpoint_useful(self) -> bool:
        """Whether a checkpoint would shorten the scan of a start, and none is being written."""
        return self._flush_state.is_checkpoint_useful

    @property
    def is_checkpoint_behind(self) -> bool:
        """Whether the checkpoint on disk lacks records of the log, or its high watermark.

        A start takes damage of the records that it lacks for a torn tail.
        """
        state = self._flush_state
        return (
            state.bytes_since_checkpoint > 0
            or self.high_watermark > state.checkpointed_high_watermark
        )

    @property
    def is_settled(self) -> bool:
        """Whether a start would find all of this log in its checkpoint.

        A log that never had records has its first checkpoint. Another is due with the first
        records only.
        """
        state = self._flush_state
        is_blank = self.log_end_offset == 0
        lacks_nothing = is_blank or not (state.is_checkpoint_due or state.is_checkpoint_useful)
        return state.is_durable and lacks_nothing and not self.is_checkpoint_behind

    def idle_log(self, *, now_ms: int) -> IdleLog | None:
        """Return the description of this log, without the CRC; `None` unless nothing is pending.

        Uncommitted records, damage and a failed disk count as pending. A log with very many
        segments takes too long to open when a request waits for it.
        """
        is_committed = self.high_watermark >= self.log_end_offset
        if self.status is not LogStatus.ONLINE or not (is_committed and self.is_settled):
            return None
        summary = self.summary(now_ms=now_ms)
        if len(summary.sealed) > _IDLE_SEALED_MAX:
            return None
        active = self._segments.active
        return IdleLog(
            0,
            active.base_offset,
            active.end_position,
            self.log_start_offset,
            self.log_end_offset,
            summary.size_bytes,
            next_change_ms(summary, self.config),
        )

    def request_checkpoint(self, *, is_due: bool = False) -> None:
        """Let the next flush write a checkpoint if the one on disk is behind, or if `is_due`."""
        if is_due or self.is_checkpoint_behind:
            self._flush_state.request_checkpoint()

    def fail(self, reason: str, *, durable_intact: bool = False) -> None:
        """Take the log offline, see `Availability`; only the next start examines the files."""
        self._availability.fail(reason, durable_intact=durable_intact)

    def close(self) -> None:
        """Drop open files without a flush. The log cannot be used afterwards."""
        self.cleaner.abort()
        self._segments.forget_files()
        self._flush_state.close()
        self.fail(CLOSED, durable_intact=True)

    def roll_if_old(self, *, now_ms: int, force: bool = False) -> None:
        """Begin a new segment if the active one is too old or too large, or if `force`.

        It is too large when `retention_bytes` or `segment_bytes` was lowered.
        """
        first_append_ms = self._segments.active.first_append_ms
        if self._availability.failure is not None or first_append_ms is None:
            return
        if now_ms < first_append_ms:
            # The clock was ahead then: the segment would be kept for too long.
            self._segments.active.first_append_ms = now_ms
        is_old = now_ms - first_append_ms >= self.config.roll_after_ms
        if force or is_old or self._segments.must_roll(0, self.log_end_offset, self.config):
            try:
                self._roll(now_ms=now_ms)
            except OSError as error:
                if error.errno not in PASSING_ERRNOS:
                    self.fail(f"rolling a segment failed: {error}", durable_intact=True)

    def look_for_room(self, *, reserve_bytes: int = 0) -> None:
        """Take appends while there is room beyond the reserve; `OSError` if the disk failed."""
        self._availability.look_for_room(self.config.max_message_bytes, reserve_bytes=reserve_bytes)

    def apply_retention(
        self, *, high_watermark: int, now_ms: int | None, wanted: int = 0
    ) -> SegmentDeletion:
        """Drop the oldest segments from the log; return the deletion of their files.

        With `None` for the time, no segment is too old. At least `wanted` segments go, as far as
        possible. Only segments below the last checkpoint go, because the checkpoint records the end
        of the log.
        """
        if self._availability.failure is not None or self.segment_count == 1:
            return SegmentDeletion(self._files.disk, self.directory, [])
        count = self._segments.deletable_count(
            self.config,
            high_watermark=min(high_watermark, self._flush_state.checkpoint_base_offset),
            log_start_offset=self.log_start_offset,
            now_ms=now_ms,
            wanted=wanted,
        )
        removed = self._segments.drop_oldest(count)
        if removed:
            self._move_start(max(self.log_start_offset, self._segments.base_offset))
            self._flush_state.request_checkpoint()
        return SegmentDeletion(self._files.disk, self.directory, removed)

    def delete_records(self, before_offset: int, *, high_watermark: int) -> None:
        """Make offsets below `before_offset` unreadable; durable after the next flush.

        Raises:
            OffsetOutOfRangeError: The offset is above the high watermark.
            LogOfflineError: The disk failed.
        """
        self.require_online()
        require_committed(
            before_offset, log_start_offset=self.log_start_offset, high_watermark=high_watermark
        )
        if before_offset > self.log_start_offset:
            self._move_start(before_offset)
            self._flush_state.request_checkpoint()
        elif self._flush_state.is_checkpoint_due or self._flush_state.dir_sync_pending:
            # The disk may have room now; or the checkpoint from the start is not durable yet.
            self._flush_state.request_checkpoint()

    def truncate(self, offset: int, *, may_drop_damage: bool = False) -> None:
        """Remove all batches that reach to or above `offset`, durably; blocks.

        For uncommitted records, when a follower diverges from its leader. No flush may be running.
        A checkpoint is written first, so that a crash does not look like damage; a crash may undo
        the truncation.

        Raises:
            CorruptRecordError: Damaged records below `offset` would go too, and `may_drop_damage`
                is false. The damage is added; nothing else has changed.
            DiskFullError: There is no room for the checkpoint; nothing has changed.
            LogOfflineError: The disk failed.
        """
        self._flush_state.settle()
        self.require_online()
        if offset >= self.log_end_offset:
            return
        try:
            self._availability.require_room(0)
            self._flush_all()
            may_drop_damage |= offset <= self.log_start_offset  # Deleted records may be damaged.
            self.cleaner.abort(clean_offset_max=offset)
            removed = self._segments.cut(offset, self.config, may_drop_damage=may_drop_damage)
            self.leader_epochs.truncate_end(self.log_end_offset)
            self.producers.truncate(self.log_end_offset)
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            self.high_watermark = min(self.high_watermark, self.log_end_offset)
            remove_markers_above(self._files.disk, self.directory, self.log_start_offset)
            path = f"{self.directory}/{CHECKPOINT_NAME}"
            write_small_file(self._files.disk, path, self._make_checkpoint())
            self._segments.cut_files(removed)
        except CorruptRecordError as error:
            self.note_damage(error)
            raise
        except OSError as error:
            self._availability.failed("truncating", error)
        self._flush_state.reset(self._segments.end, high_watermark=self.high_watermark)

    def _require_held(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise out_of_range(offset, self.log_start_offset, self.log_end_offset)

    def _flush_all(self) -> None:
        flush = self.begin_flush()
        if flush is not None:
            flush.run()
            self.end_flush(flush)

    def _move_start(self, offset: int) -> None:
        self.cleaner.abort()
        self.log_start_offset = offset
        self.leader_epochs.truncate_start(offset)
        self._segments.damage.truncate_start(offset)

    def _roll(self, *, now_ms: int) -> None:
        for path, file in self._segments.roll(self.config, now_ms=now_ms).items():
            self._flush_state.mark_dirty(path, file)
        self._flush_state.mark_dir_dirty()
        self._flush_state.on_roll()

    def _make_checkpoint(self) -> LogCheckpoint:
        return self._segments.checkpoint(
            log_start_offset=self.log_start_offset,
            leader_epochs=self.leader_epochs,
            producers=self.producers,
            high_watermark=self.high_watermark,
            clean_offset=self.cleaner.clean_offset,
        )

    def require_online(self) -> None:
        """Check that the log can be used.

        Raises:
            LogOfflineError: The disk failed, or the log was closed.
        """
        self._availability.require_online()
