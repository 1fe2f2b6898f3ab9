"""Making a log durable: what is blocking, apart from what decides.

Group commit: one flush serves every append that arrived while the last one ran.
"""

from collections.abc import Mapping
from typing import final

import msgspec

from tidelog.logstore.checkpoint import CHECKPOINT_NAME, LogCheckpoint, write_small_file
from tidelog.logstore.disk.disk import NO_DESCRIPTOR_ERRNOS, PASSING_ERRNOS, Disk, File
from tidelog.logstore.segments.log_position import LogPosition
from tidelog.logstore.segments.segment_deletion import remove_needless_marks


class FlushWork(msgspec.Struct, frozen=True):
    """What is to be made durable."""

    files: Mapping[str, File]
    """Files with unsynced bytes, by path."""
    end: LogPosition
    """Everything below it is durable once the work is done."""
    has_new_names: bool
    """Whether files were made since the last sync of the directory."""
    checkpoint: LogCheckpoint | None
    """To be written when all else is durable; describes the log as far as `end`."""
    bytes_since_checkpoint: int
    """Bytes that a start need not scan once the checkpoint is written."""
    leaves_checkpoint: bool = False
    """Whether the checkpoint is left for later, for nothing would be lost without it."""


@final
class Flush:
    """The blocking part of making a log durable; touches nothing but files.

    `run` may be called in another thread while the log goes on; then give it back to
    `PartitionLog.end_flush`, or say `PartitionLog.fail`. One flush of a log at a time. What came
    of it is remembered here as well, so that the log learns of it even if whoever waited for it
    was cancelled.
    """

    def __init__(
        self, disk: Disk, directory: str, work: FlushWork, *, is_small: bool = False
    ) -> None:
        """Make durable what `work` says of the log in `directory`."""
        self._disk = disk
        self._directory = directory
        self.work = work
        self.is_small = is_small
        """Whether it is one sync of a few bytes."""
        self.is_running = False
        """Whether `run` was called and has not returned."""
        self.is_done = False
        """Whether all is durable."""
        self.error: OSError | None = None
        """Why the log must go offline."""
        self.had_no_room = False
        """Whether the checkpoint could not be written for now, for the disk was too full or no more
        files could be open. The old one is still right."""

    def run(self) -> None:
        """Sync; blocks.

        Raises:
            OSError: The disk failed; the log must go offline. Or no more files could be open
                (`NO_DESCRIPTOR_ERRNOS`), and it was as if this had never begun.
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
        if self.work.has_new_names:
            self._disk.sync_directory(self._directory)
        if self.work.checkpoint is None or self.work.leaves_checkpoint:
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
            remove_needless_marks(self._disk, self._directory, log_start_offset)
