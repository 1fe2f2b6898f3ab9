"""Making a log durable: what is blocking, apart from what decides.

Group commit: one flush serves every append that arrived while the last one ran.
"""

from typing import final

import msgspec

from logstore.checkpoint import CHECKPOINT_NAME, LogCheckpoint, write_small_file
from logstore.disk import Disk, File


class LogPosition(msgspec.Struct, frozen=True, gc=False):
    """A place between two batches."""

    offset: int
    segment_base_offset: int
    position: int


@final
class Flush:
    """The blocking part of making a log durable; touches nothing but files.

    `run` may be called in another thread while the log goes on; then give it back to
    `PartitionLog.end_flush`, or say `PartitionLog.fail`. One flush of a log at a time.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        files: list[File],
        end: LogPosition,
        has_new_names: bool,
        checkpoint: LogCheckpoint | None,
    ) -> None:
        """Sync `files`, then, as told, the names in `directory`, then write the checkpoint."""
        self._disk = disk
        self._directory = directory
        self._files = files
        self._has_new_names = has_new_names
        self._checkpoint = checkpoint
        self.end = end
        """Everything below it is durable once `run` has returned."""

    def run(self) -> None:
        """Sync; blocks.

        Raises:
            OSError: The disk failed; the log must go offline.
        """
        for file in self._files:
            file.sync()
        if self._has_new_names:
            self._disk.sync_directory(self._directory)
        if self._checkpoint is not None:
            write_small_file(self._disk, f"{self._directory}/{CHECKPOINT_NAME}", self._checkpoint)
