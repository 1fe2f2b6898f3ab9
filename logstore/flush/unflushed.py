"""What a log still has to make durable, and the flush that is doing it.

Pure: no clock, no I/O.
"""

from collections.abc import Callable
from typing import final

import msgspec

from tidelog.logstore.checkpoint import LogCheckpoint
from tidelog.logstore.disk.disk import File
from tidelog.logstore.flush.flush_work import FlushWork
from tidelog.logstore.segments.log_position import LogPosition


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
        """Whether the checkpoint on disk does not say all that it must."""
        self.is_checkpoint_useful = False
        """Whether another checkpoint would only let a start scan less."""
        self._is_room_for_checkpoint = True
        self.bytes_since_checkpoint = 0
        """How many bytes a start after a crash would have to scan."""
        self.work: FlushWork | None = None
        """What the flush under way makes durable."""
        self.left: FlushWork | None = None
        """The checkpoint that a flush has left for later, while that is not written."""

    def wrote(self, path: str, file: File, size: int = 0) -> None:
        """Take note of unsynced bytes, `size` of them batches."""
        self._files[path] = file
        self.bytes_since_checkpoint += size

    def made_name(self) -> None:
        """Take note that a file was made."""
        self._has_new_names = True

    def rolled(self) -> None:
        """Take note that a start need not scan the segments before the active one."""
        self.is_checkpoint_useful = True
        self._is_room_for_checkpoint = True

    def request_checkpoint(self) -> None:
        """Take note that the checkpoint on disk does not say all that it must."""
        self.is_checkpoint_due = True
        self._is_room_for_checkpoint = True

    def begin(
        self,
        end: LogPosition,
        *,
        checkpoint_bytes: int,
        make_checkpoint: Callable[[], LogCheckpoint],
        may_leave_checkpoint: bool = False,
    ) -> FlushWork | None:
        """Return what makes everything so far durable, `None` if it all is."""
        assert self.work is None, "one flush at a time"
        assert self.left is None or not self.is_checkpoint_due, "one checkpoint at a time"
        is_useful = self.left is None and (
            self.is_checkpoint_useful or self.bytes_since_checkpoint >= checkpoint_bytes
        )
        is_due = self.is_checkpoint_due or is_useful
        has_bytes = bool(self._files) or self._has_new_names
        if not has_bytes and not (is_due and self._is_room_for_checkpoint):
            return None
        self.work = FlushWork(
            files=self._files,
            end=end,
            has_new_names=self._has_new_names or self.are_names_in_doubt,
            checkpoint=make_checkpoint() if is_due else None,
            bytes_since_checkpoint=self.bytes_since_checkpoint,
            leaves_checkpoint=may_leave_checkpoint and is_due and not self.is_checkpoint_due,
        )
        self._files = {}
        self._has_new_names = self.are_names_in_doubt = False
        if is_due:
            self.is_checkpoint_due = self.is_checkpoint_useful = False
        return self.work

    def done(self, *, had_no_room: bool) -> None:
        """Take note that the work is done, but for the checkpoint if it `had_no_room`."""
        work = self.work
        assert work is not None
        self.work = None
        if work.leaves_checkpoint:
            self.left = msgspec.structs.replace(
                work, files={}, has_new_names=False, leaves_checkpoint=False
            )
            return
        # Not tried again before there is more to flush, or somebody asks.
        self._is_room_for_checkpoint = not had_no_room
        if had_no_room:
            self.is_checkpoint_due = True
        elif work.checkpoint is not None:
            self.bytes_since_checkpoint -= work.bytes_since_checkpoint

    def left_done(self, *, had_no_room: bool) -> None:
        """Take note that the checkpoint that was left is written, or that it `had_no_room`."""
        assert self.left is not None
        if had_no_room:
            self._is_room_for_checkpoint = False
            self.is_checkpoint_useful = True
        else:
            self.bytes_since_checkpoint -= self.left.bytes_since_checkpoint
        self.left = None

    def take_back(self) -> None:
        """Take note that the work was never begun."""
        work = self.work
        assert work is not None
        self._files = {**work.files, **self._files}
        self._has_new_names |= work.has_new_names
        if work.leaves_checkpoint:
            self.is_checkpoint_useful = True
        else:
            self.is_checkpoint_due |= work.checkpoint is not None
        self.work = None

    def take_back_left(self) -> None:
        """Take note that the checkpoint that was left will not be written."""
        self.is_checkpoint_useful |= self.left is not None
        self.left = None
