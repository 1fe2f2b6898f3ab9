"""Flushes of one log: its durable end, its dirty files, and the job that syncs them.

Group commit: one flush serves every append that arrived during the flush before. `FlushState`
decides and never blocks; a `FlushJob` blocks and decides nothing, so it may run in a thread.
"""

from collections.abc import Callable, Mapping
from typing import Final, final

import msgspec

from tidelog.logstore.checkpoint import CHECKPOINT_NAME, LogCheckpoint, write_small_file
from tidelog.logstore.disk.availability import Availability
from tidelog.logstore.disk.disk import NO_DESCRIPTOR_ERRNOS, PASSING_ERRNOS, Disk, File
from tidelog.logstore.segments.log_position import LogPosition
from tidelog.logstore.segments.segment import Segment
from tidelog.logstore.segments.segment_deletion import remove_obsolete_markers

_SMALL_BYTES: Final = 64 << 10


class FlushWork(msgspec.Struct, frozen=True):
    """Work of one flush."""

    files: Mapping[str, File]
    """Files with unsynced bytes, by path."""
    end: LogPosition
    """New durable end of the log after the flush."""
    syncs_directory: bool
    """Whether the directory may have names that are not durable."""
    checkpoint: LogCheckpoint | None
    """Checkpoint up to `end`, to write when all else is durable."""
    bytes_since_checkpoint: int
    """Bytes that a start need not scan once the checkpoint is written."""
    defers_checkpoint: bool = False
    """Whether a later job writes the checkpoint: its loss only costs a longer scan."""


@final
class FlushJob:
    """The blocking part of a flush; touches only files.

    `run` may run in another thread while the log is in use. Pass the job to
    `PartitionLog.end_flush` afterwards, or call `PartitionLog.fail`. A log has one flush at a time.
    The job keeps its outcome, so that the log gets it even if the caller was cancelled.
    """

    def __init__(
        self, disk: Disk, directory: str, work: FlushWork, *, is_small: bool = False
    ) -> None:
        """Make `work` durable for the log in `directory`."""
        self._disk = disk
        self._directory = directory
        self.work = work
        self.is_small = is_small
        """Whether the job is one sync of a few bytes."""
        self.is_running = False
        """Whether `run` was called and has not returned."""
        self.is_done = False
        """Whether the work is durable."""
        self.error: OSError | None = None
        """The error for which the log must go offline."""
        self.had_no_room = False
        """Whether the checkpoint failed for now: the disk was full, or no file descriptor was free.
        The old checkpoint is still valid."""

    def run(self) -> None:
        """Sync; blocks.

        Raises:
            OSError: The disk failed; the log must go offline. Or no file descriptor was free
                (`NO_DESCRIPTOR_ERRNOS`), and the job had no effect.
        """
        self.is_running = True
        try:
            self._run()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR_ERRNOS:
                self.error = error
            raise
        finally:
            self.is_running = False
        self.is_done = True

    def _run(self) -> None:
        for file in self.work.files.values():
            file.sync()
        if self.work.syncs_directory:
            self._disk.sync_directory(self._directory)
        if self.work.checkpoint is None or self.work.defers_checkpoint:
            return
        path = f"{self._directory}/{CHECKPOINT_NAME}"
        try:
            write_small_file(self._disk, path, self.work.checkpoint)
        except OSError as error:
            if error.errno not in PASSING_ERRNOS:
                raise
            self.had_no_room = True
        else:
            log_start_offset = self.work.checkpoint.log_start_offset
            remove_obsolete_markers(self._disk, self._directory, log_start_offset)


@final
class FlushState:
    """Durable end, dirty files and running jobs of one log.

    Invariant: all bytes and names that are not durable are in the dirty state or in a job. One
    flush runs at a time, and one deferred checkpoint; other flushes may run beside the checkpoint.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        availability: Availability,
        *,
        durable: LogPosition,
        checkpoint_base_offset: int,
        is_checkpoint_due: bool,
        dir_sync_pending: bool = False,
        high_watermark: int = 0,
    ) -> None:
        """Start with a log in `directory` that is durable up to `durable`."""
        self._disk = disk
        self._directory = directory
        self._availability = availability
        self.durable = durable
        """Durable end: all records below it are on disk."""
        self.checkpoint_base_offset = checkpoint_base_offset
        """Base offset below which segments are fully on disk; the checkpoint on disk has it."""
        self.is_checkpoint_due = is_checkpoint_due
        """Whether the checkpoint on disk lacks something that it must have."""
        self.dir_sync_pending = dir_sync_pending
        """Whether an earlier process may have ended before its names were durable. The next flush
        syncs the directory; this alone starts no flush."""
        self.bytes_since_checkpoint = 0
        """Bytes that a start after a crash would scan."""
        self.checkpointed_high_watermark = high_watermark
        """High watermark in the checkpoint on disk."""
        self._dirty_files: dict[str, File] = {}
        self._is_dir_dirty = False
        self._is_checkpoint_useful = False
        self._is_room_for_checkpoint = True
        self._job: FlushJob | None = None
        self._deferred: FlushWork | None = None
        """The work of a deferred checkpoint that is not written yet."""
        self._checkpoint_job: FlushJob | None = None
        """The job that writes `_deferred`."""

    @property
    def is_checkpoint_useful(self) -> bool:
        """Whether a checkpoint would shorten the scan of a start, and none is deferred."""
        return self._is_checkpoint_useful and self._deferred is None

    @property
    def is_durable(self) -> bool:
        """Whether all is durable and no job is under way."""
        is_dirty = bool(self._dirty_files) or self._is_dir_dirty
        return not is_dirty and self._job is None and self._deferred is None

    def mark_dirty(self, path: str, file: File, size: int = 0) -> None:
        """Add a file with unsynced bytes, `size` of them batches."""
        self._dirty_files[path] = file
        self.bytes_since_checkpoint += size

    def mark_dir_dirty(self) -> None:
        """Let the next flush sync the directory: a file was created."""
        self._is_dir_dirty = True

    def on_roll(self) -> None:
        """Let the next flush write a checkpoint, so that a start need not scan sealed segments."""
        self._is_checkpoint_useful = True
        self._is_room_for_checkpoint = True

    def request_checkpoint(self) -> None:
        """Let the next flush write a checkpoint: the checkpoint on disk lacks something."""
        self.is_checkpoint_due = True
        self._is_room_for_checkpoint = True

    def begin(
        self,
        end: LogPosition,
        *,
        checkpoint_bytes: int,
        make_checkpoint: Callable[[], LogCheckpoint],
        may_defer_checkpoint: bool = False,
    ) -> FlushJob | None:
        """Return the job that makes the log durable up to `end`; `None` if it is, or is offline."""
        self._settle_flush()
        if not may_defer_checkpoint:
            self._settle_checkpoint()
        if self._availability.failure is not None:
            return None
        work = self._next_work(
            end,
            checkpoint_bytes=checkpoint_bytes,
            make_checkpoint=make_checkpoint,
            may_defer_checkpoint=may_defer_checkpoint,
        )
        if work is not None:
            is_small = self._is_small(work)
            self._job = FlushJob(self._disk, self._directory, work, is_small=is_small)
        return self._job

    def end(self, job: FlushJob) -> None:
        """Move the durable end after `job` has run, unless its outcome was settled meanwhile."""
        if job is not self._job or self._availability.failure is not None:
            return
        assert job.is_done
        self._job = None
        work = job.work
        self.durable = work.end
        if work.defers_checkpoint:
            self._deferred = msgspec.structs.replace(
                work, files={}, syncs_directory=False, defers_checkpoint=False
            )
            return
        # The next attempt waits for more to flush, or for a request.
        self._is_room_for_checkpoint = not job.had_no_room
        if job.had_no_room:
            self.is_checkpoint_due = True
        else:
            self._on_checkpoint_written(work)

    def begin_checkpoint(self) -> FlushJob | None:
        """Return the job that writes the deferred checkpoint, `None` without one."""
        if self._deferred is None or self._checkpoint_job is not None:
            return None
        if self._availability.failure is not None:
            return None
        self._checkpoint_job = FlushJob(self._disk, self._directory, self._deferred)
        return self._checkpoint_job

    def end_checkpoint(self, job: FlushJob) -> None:
        """Apply the checkpoint of `job`, which has run, unless its outcome was settled."""
        if job is not self._checkpoint_job or self._availability.failure is not None:
            return
        assert job.is_done
        assert self._deferred is not None
        self._checkpoint_job = self._deferred = None
        if job.had_no_room:
            self._is_room_for_checkpoint = False
            self._is_checkpoint_useful = True
        else:
            self._on_checkpoint_written(job.work)

    def settle(self) -> None:
        """Settle jobs whose outcome was never reported; none may be running."""
        self._settle_flush()
        self._settle_checkpoint()

    def durable_position_in(self, segment: Segment) -> int:
        """Return the durable bytes of a segment, 0 if it is not the last one."""
        is_last = self.durable.segment_base_offset == segment.base_offset
        return self.durable.position if is_last else 0

    def reset(self, end: LogPosition, *, high_watermark: int) -> None:
        """Restart with a log that was truncated at `end` durably, with a matching checkpoint."""
        self.checkpointed_high_watermark = high_watermark
        self.durable = end
        self.checkpoint_base_offset = end.segment_base_offset
        self._forget_dirty()

    def close(self) -> None:
        """Drop the dirty state and all jobs."""
        self._forget_dirty()
        self._job = self._checkpoint_job = None

    def _next_work(
        self,
        end: LogPosition,
        *,
        checkpoint_bytes: int,
        make_checkpoint: Callable[[], LogCheckpoint],
        may_defer_checkpoint: bool,
    ) -> FlushWork | None:
        """Move the dirty state into a work, `None` if there is nothing to do."""
        assert self._deferred is None or not self.is_checkpoint_due, "one checkpoint at a time"
        is_useful = self._deferred is None and (
            self._is_checkpoint_useful or self.bytes_since_checkpoint >= checkpoint_bytes
        )
        has_checkpoint = self.is_checkpoint_due or is_useful
        is_dirty = bool(self._dirty_files) or self._is_dir_dirty
        if not is_dirty and not (has_checkpoint and self._is_room_for_checkpoint):
            return None
        work = FlushWork(
            files=self._dirty_files,
            end=end,
            syncs_directory=self._is_dir_dirty or self.dir_sync_pending,
            checkpoint=make_checkpoint() if has_checkpoint else None,
            bytes_since_checkpoint=self.bytes_since_checkpoint,
            defers_checkpoint=may_defer_checkpoint and is_useful and not self.is_checkpoint_due,
        )
        self._dirty_files = {}
        self._is_dir_dirty = self.dir_sync_pending = False
        if has_checkpoint:
            self.is_checkpoint_due = self._is_checkpoint_useful = False
        return work

    def _is_small(self, work: FlushWork) -> bool:
        writes_checkpoint = work.checkpoint is not None and not work.defers_checkpoint
        if len(work.files) != 1 or work.syncs_directory or writes_checkpoint:
            return False
        is_in_one = work.end.segment_base_offset == self.durable.segment_base_offset
        return is_in_one and work.end.position - self.durable.position <= _SMALL_BYTES

    def _on_checkpoint_written(self, work: FlushWork) -> None:
        if work.checkpoint is not None:
            self.bytes_since_checkpoint -= work.bytes_since_checkpoint
            self.checkpoint_base_offset = work.checkpoint.recovery_base_offset
            self.checkpointed_high_watermark = work.checkpoint.high_watermark

    def _settle_flush(self) -> None:
        job = self._job
        if job is None:
            return
        assert not job.is_running, "one flush at a time"
        if job.is_done:
            self.end(job)
        elif job.error is not None:
            self._availability.fail(f"fsync failed: {job.error}", durable_intact=True)
        else:
            self._cancel(job.work)
        self._job = None

    def _settle_checkpoint(self) -> None:
        job = self._checkpoint_job
        if job is not None:
            assert not job.is_running, "one checkpoint at a time"
            if job.is_done:
                self.end_checkpoint(job)
            elif job.error is not None:
                reason = f"writing a checkpoint failed: {job.error}"
                self._availability.fail(reason, durable_intact=True)
        self._checkpoint_job = None
        self._cancel_checkpoint()

    def _cancel(self, work: FlushWork) -> None:
        """Return the work of a job that never ran to the dirty state."""
        self._dirty_files = {**work.files, **self._dirty_files}
        self._is_dir_dirty |= work.syncs_directory
        if work.defers_checkpoint:
            self._is_checkpoint_useful = True
        else:
            self.is_checkpoint_due |= work.checkpoint is not None

    def _cancel_checkpoint(self) -> None:
        """Let the next flush write the checkpoint that was deferred."""
        self._is_checkpoint_useful |= self._deferred is not None
        self._deferred = None

    def _forget_dirty(self) -> None:
        self._dirty_files = {}
        self._is_dir_dirty = self.dir_sync_pending = False
        self.is_checkpoint_due = self._is_checkpoint_useful = False
        self._is_room_for_checkpoint = True
        self.bytes_since_checkpoint = 0
        self._deferred = None
