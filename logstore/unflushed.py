"""What a log still has to make durable, and the flush that is doing it.

Pure: no clock, no I/O.
"""

from collections.abc import Callable
from typing import final

from logstore.checkpoint import LogCheckpoint
from logstore.disk import File
from logstore.flush import FlushWork, LogPosition


@final
class Unflushed:
    """Files, names and the checkpoint that are behind what was appended.

    Invariant: whatever is not durable is in here or in `work`.
    """

    def __init__(self, *, is_checkpoint_due: bool, are_names_in_doubt: bool = False) -> None:
        """Begin with nothing but, maybe, a checkpoint, and names that the next flush confirms."""
        self._files: dict[str, File] = {}
        self._has_new_names = False
        self.are_names_in_doubt = are_names_in_doubt
        """Whether a process before this one may have ended before its names were durable."""
        self.is_checkpoint_due = is_checkpoint_due
        """Whether the checkpoint on disk does not say all that it should."""
        self._is_room_for_checkpoint = True
        self.bytes_since_checkpoint = 0
        """How many bytes a start after a crash would have to scan."""
        self.work: FlushWork | None = None
        """What the flush under way makes durable."""

    def wrote(self, path: str, file: File, size: int = 0) -> None:
        """Take note of unsynced bytes, `size` of them batches."""
        self._files[path] = file
        self.bytes_since_checkpoint += size

    def made_name(self) -> None:
        """Take note that a file was made."""
        self._has_new_names = True

    def request_checkpoint(self) -> None:
        """Take note that the checkpoint on disk does not say all that it should."""
        self.is_checkpoint_due = True
        self._is_room_for_checkpoint = True

    def begin(
        self,
        end: LogPosition,
        *,
        checkpoint_bytes: int,
        make_checkpoint: Callable[[], LogCheckpoint],
    ) -> FlushWork | None:
        """Return what makes everything so far durable, `None` if it all is."""
        assert self.work is None, "one flush at a time"
        is_due = self.is_checkpoint_due or self.bytes_since_checkpoint >= checkpoint_bytes
        has_bytes = bool(self._files) or self._has_new_names
        if not has_bytes and not (is_due and self._is_room_for_checkpoint):
            return None
        self.work = FlushWork(
            files=self._files,
            end=end,
            has_new_names=self._has_new_names or self.are_names_in_doubt,
            checkpoint=make_checkpoint() if is_due else None,
            bytes_since_checkpoint=self.bytes_since_checkpoint,
        )
        self._files = {}
        self._has_new_names = self.are_names_in_doubt = False
        self.is_checkpoint_due = False
        return self.work

    def done(self, *, had_no_room: bool) -> None:
        """Take note that the work is done, but for the checkpoint if it `had_no_room`."""
        assert self.work is not None
        # Not tried again before there is more to flush, or somebody asks.
        self._is_room_for_checkpoint = not had_no_room
        if had_no_room:
            self.is_checkpoint_due = True
        elif self.work.checkpoint is not None:
            self.bytes_since_checkpoint -= self.work.bytes_since_checkpoint
        self.work = None

    def take_back(self) -> None:
        """Take note that the work was never begun."""
        assert self.work is not None
        self._files = {**self.work.files, **self._files}
        self._has_new_names |= self.work.has_new_names
        self.is_checkpoint_due |= self.work.checkpoint is not None
        self.work = None
