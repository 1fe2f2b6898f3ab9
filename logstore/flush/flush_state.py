"""How far a log is durable, and the work that makes more of it so.

Synchronous; what blocks is handed out as a `Flush`, which runs elsewhere.
"""

from collections.abc import Callable
from typing import Final, final

from tidelog.logstore.checkpoint import LogCheckpoint
from tidelog.logstore.disk.availability import Availability
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.flush.flush_work import Flush, FlushWork
from tidelog.logstore.flush.unflushed import Unflushed
from tidelog.logstore.segments.log_position import LogPosition
from tidelog.logstore.segments.segment import Segment

_SMALL_BYTES: Final = 64 << 10


@final
class Flushes:
    """The flushes of one log: what they came to, and which are under way.

    Invariant: of flushes and of checkpoints, one is under way at a time. So a flush that leaves
    its checkpoint for later can be followed by others that write none while that is written.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        availability: Availability,
        *,
        durable: LogPosition,
        checkpoint_base_offset: int,
    ) -> None:
        """Begin with a log in `directory` that is durable up to `durable`."""
        self._disk = disk
        self._directory = directory
        self._availability = availability
        self.durable = durable
        """Everything below it is on disk."""
        self.checkpoint_base_offset = checkpoint_base_offset
        """Segments below it are wholly on disk, and the checkpoint on disk says so."""
        self._flush: Flush | None = None
        self._checkpoint: Flush | None = None
        """The one that is written apart."""

    def begin(
        self,
        unflushed: Unflushed,
        end: LogPosition,
        *,
        checkpoint_bytes: int,
        make_checkpoint: Callable[[], LogCheckpoint],
        may_leave_checkpoint: bool,
    ) -> Flush | None:
        """Return what makes a log durable up to `end`, `None` if it is or is offline."""
        self._settle_flush(unflushed)
        if not may_leave_checkpoint:
            self._settle_checkpoint(unflushed)
        if self._availability.failure is not None:
            return None
        work = unflushed.begin(
            end,
            checkpoint_bytes=checkpoint_bytes,
            make_checkpoint=make_checkpoint,
            may_leave_checkpoint=may_leave_checkpoint,
        )
        if work is not None:
            self._flush = Flush(self._disk, self._directory, work, is_small=self._is_small(work))
        return self._flush

    def end(self, unflushed: Unflushed, flush: Flush) -> None:
        """Take note that `flush` has run, unless something else has settled it meanwhile."""
        if flush is not self._flush or self._availability.failure is not None:
            return
        assert flush.is_done
        self._flush = None
        unflushed.done(had_no_room=flush.had_no_room)
        self.durable = flush.work.end
        if not flush.work.leaves_checkpoint:
            self._note_checkpoint(flush)

    def begin_checkpoint(self, unflushed: Unflushed) -> Flush | None:
        """Return what writes the checkpoint that the last flush has left, `None` if none is."""
        if unflushed.left is None or self._checkpoint is not None:
            return None
        if self._availability.failure is not None:
            return None
        self._checkpoint = Flush(self._disk, self._directory, unflushed.left)
        return self._checkpoint

    def end_checkpoint(self, unflushed: Unflushed, checkpoint: Flush) -> None:
        """Take note that `checkpoint` has run, unless something else has settled it meanwhile."""
        if checkpoint is not self._checkpoint or self._availability.failure is not None:
            return
        assert checkpoint.is_done
        self._checkpoint = None
        unflushed.left_done(had_no_room=checkpoint.had_no_room)
        self._note_checkpoint(checkpoint)

    def settle(self, unflushed: Unflushed) -> None:
        """Take account of all of which nobody said what came of it; nothing may be running."""
        self._settle_flush(unflushed)
        self._settle_checkpoint(unflushed)

    def durable_position_in(self, segment: Segment) -> int:
        """Return how many bytes of a segment are known to be on disk, 0 if it is not the last."""
        is_last = self.durable.segment_base_offset == segment.base_offset
        return self.durable.position if is_last else 0

    def cut(self, end: LogPosition) -> None:
        """Take note that the log ends at `end` now, durably, and the checkpoint says so."""
        self.durable = end
        self.checkpoint_base_offset = end.segment_base_offset

    def forget(self) -> None:
        """Take account of nothing any more: the log is closed."""
        self._flush = self._checkpoint = None

    def _is_small(self, work: FlushWork) -> bool:
        writes_checkpoint = work.checkpoint is not None and not work.leaves_checkpoint
        if len(work.files) != 1 or work.has_new_names or writes_checkpoint:
            return False
        is_in_one = work.end.segment_base_offset == self.durable.segment_base_offset
        return is_in_one and work.end.position - self.durable.position <= _SMALL_BYTES

    def _note_checkpoint(self, flush: Flush) -> None:
        if flush.work.checkpoint is not None and not flush.had_no_room:
            self.checkpoint_base_offset = flush.work.checkpoint.recovery_base_offset

    def _settle_flush(self, unflushed: Unflushed) -> None:
        flush = self._flush
        if flush is None:
            return
        assert not flush.is_running, "one flush at a time"
        if flush.is_done:
            self.end(unflushed, flush)
        elif flush.error is not None:
            self._availability.fail(f"fsync failed: {flush.error}", keeps_durable=True)
        else:
            unflushed.take_back()
        self._flush = None

    def _settle_checkpoint(self, unflushed: Unflushed) -> None:
        checkpoint = self._checkpoint
        if checkpoint is not None:
            assert not checkpoint.is_running, "one checkpoint at a time"
            if checkpoint.is_done:
                self.end_checkpoint(unflushed, checkpoint)
            elif checkpoint.error is not None:
                reason = f"writing a checkpoint failed: {checkpoint.error}"
                self._availability.fail(reason, keeps_durable=True)
        self._checkpoint = None
        unflushed.take_back_left()
