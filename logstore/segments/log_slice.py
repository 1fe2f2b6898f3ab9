"""Slices of a log that are ready to send (Kafka: FileRecords slice).

The broker checks bytes when they come from the disk, not each time it sends them: bytes that this
process wrote, or that `load` has just read, are checked and in the page cache. Consumers check
again, end to end, and so detect corruption in between.
"""

from typing import final

from tidelog.logstore.disk.disk import File
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.segments.batch_scanner import FileWindow, Predecessor, walk_headers
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.errors import CorruptRecordError, OffsetOutOfRangeError


@final
class LogSlice:
    """Whole batches in one segment file, from `position` on, `length` bytes."""

    __slots__ = (
        "_end_offset",
        "_is_trusted",
        "file",
        "has_more",
        "is_unsynced",
        "leader_epochs",
        "length",
        "offset",
        "position",
        "start_offset",
    )

    def __init__(
        self,
        file: File,
        position: int,
        length: int,
        *,
        offset: int,
        end_offset: int,
        is_trusted: bool,
    ) -> None:
        """Refer to batches; `offset` is the requested one, `end_offset` the segment's end."""
        self.file = file
        self.position = position
        self.length = length
        self.offset = offset
        self._end_offset = end_offset
        self._is_trusted = is_trusted
        self.start_offset = 0
        """Lower bound of its base offsets: a batch that begins below is misplaced."""
        self.is_unsynced = False
        """Whether all of it is written but not synced yet: the page cache keeps it."""
        self.leader_epochs: LeaderEpochs | None = None
        """Epochs of the log, if known: a batch of another epoch is stale. They must not change
        while the slice is loaded."""
        self.has_more = False
        """Whether more can be read: beyond a limit, in the next segment, or after damage."""

    @property
    def is_trusted(self) -> bool:
        """Whether all of it was checked before."""
        return self._is_trusted

    def is_ready(self) -> bool:
        """Return whether it can be sent at once: it is checked and in the page cache."""
        if not self._is_trusted:
            return False
        return self.is_unsynced or self.file.is_cached(self.position, self.length)

    def load(self) -> "LogSlice":
        """Read from the disk and check; return the good part, at least one batch. Blocks.

        Damaged batches below the requested offset are skipped; the slice ends before damage above
        it.

        Raises:
            CorruptRecordError: The batch with the requested offset is damaged.
            OSError: The disk failed.
        """
        end = self.position + self.length
        window = FileWindow(self.file, end=end)
        start = position = self.position
        last = Predecessor(self.start_offset)
        while position < end:
            header = window.valid_header(position)
            if header is None or not self._may_follow(last, header):
                if position > start:
                    break
                start = position = self._behind_damage(position, last)
                continue
            last = Predecessor(header.next_offset, header.leader_epoch, header.durable_position)
            position += header.size
            if header.next_offset <= self.offset:
                start = position
        if position == start:
            raise corrupt(self.offset, self._end_offset)
        first = window.header(start)
        if first is not None and first.base_offset > self.offset:
            # A good batch, but in the place of another one.
            raise corrupt(self.offset, first.base_offset)
        loaded = LogSlice(
            self.file,
            start,
            position - start,
            offset=self.offset,
            end_offset=self._end_offset,
            is_trusted=True,
        )
        loaded.has_more = self.has_more or position < end
        return loaded

    def begin_at(self, offset: int) -> None:
        """Skip the batches that end at or below `offset`; reads headers.

        A follower continues exactly at the end of its log.

        Raises:
            OSError: The disk failed.
        """
        if self._is_trusted and self.start_offset == offset:
            return  # It begins there already, so no header need be read.
        end = self.position + self.length
        for position, header in walk_headers(
            self.file, self.position, start_offset=self.start_offset, end=end
        ):
            if header.next_offset > offset:
                self.position, self.length = position, end - position
                self.start_offset = header.base_offset
                return

    def read(self) -> bytes:
        """Return the bytes; blocks unless `is_ready`."""
        return self.file.read_at(self.position, self.length)

    def _may_follow(self, last: Predecessor, header: BatchHeader) -> bool:
        return last.may_precede(header) and (
            self.leader_epochs is None
            or self.leader_epochs.wrote(header.leader_epoch, header.next_offset - 1)
        )

    def _behind_damage(self, position: int, last: Predecessor) -> int:
        """Return the position after damage below the requested offset."""
        window = FileWindow(self.file, end=self.file.size())
        found = window.find_behind(position, accepts=lambda header: self._may_follow(last, header))
        next_offset = self._end_offset if found is None else found[1].base_offset
        if found is None or next_offset > self.offset:
            raise corrupt(self.offset, next_offset)
        return found[0]


def corrupt(offset: int, next_offset: int) -> CorruptRecordError:
    """Return the error for damaged records from `offset` to `next_offset` (exclusive)."""
    next_offset = max(next_offset, offset + 1)
    return CorruptRecordError(
        f"stored records {offset} to {next_offset} (exclusive) are damaged;"
        f" reading can continue at {next_offset}",
        offset=offset,
        next_offset=next_offset,
    )


def out_of_range(offset: int, log_start_offset: int, log_end_offset: int) -> OffsetOutOfRangeError:
    """Return the error for an offset that is not in the log."""
    return OffsetOutOfRangeError(
        f"offset {offset} is not in the log, which has offsets {log_start_offset} to"
        f" {log_end_offset} (exclusive)",
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
    )
