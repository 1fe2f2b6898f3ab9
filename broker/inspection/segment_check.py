"""Check of the batches of one segment against its footer, its index and a checkpoint.

Decides; reads through a disk that it never writes.
"""

from collections.abc import Iterator
from typing import final

from tidelog.broker.inspection.dump import index_problem
from tidelog.broker.inspection.file_kinds import number_in
from tidelog.broker.inspection.index_check import IndexCheck
from tidelog.broker.inspection.segment_walk import BadRange, SegmentFrame, walk
from tidelog.broker.inspection.small_files import read_whole
from tidelog.logstore.checkpoint import LogCheckpoint
from tidelog.logstore.disk.disk import File, ReadableDisk
from tidelog.logstore.segments.gap_scan import ValidBatch
from tidelog.logstore.segments.offset_index import OffsetIndex
from tidelog.logstore.segments.segment import INDEX_SUFFIX, LOG_SUFFIX
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE


@final
class SegmentCheck:
    """The batches of one segment, compared with its footer, its index and a checkpoint."""

    def __init__(
        self,
        disk: ReadableDisk,
        path: str,
        file: File,
        *,
        frame: SegmentFrame,
        checkpoint: LogCheckpoint | None,
    ) -> None:
        """Check an open segment, and its index if it has one."""
        self.path, self.file = path, file
        self.base_offset = number_in(path)
        self.end_offset = self.base_offset
        self._disk, self._frame = disk, frame
        is_active = checkpoint is not None and (checkpoint.recovery_base_offset == self.base_offset)
        self._checkpoint = checkpoint if is_active else None
        self._boundaries = {(SEGMENT_HEADER_SIZE, self.base_offset)}
        self._max_timestamp_ms = 0
        self._has_bad = False
        self._index_error: str | None = None
        self._index = self._stored_index()
        self._kept_index = self._index_of_checkpoint()

    def run(self) -> Iterator[ValidBatch | BadRange]:
        """Yield what `walk` yields."""
        point = None if self._checkpoint is None else self._checkpoint.recovery_position
        for found in walk(self.file, self._frame, self.base_offset):
            if isinstance(found, BadRange):
                self._has_bad = True
                self.end_offset = found.end_offset or self.end_offset
            else:
                self._compare(found)
                self.end_offset = found.end_offset
                position = found.position + found.header.size
                if position == point:
                    self._boundaries.add((position, self.end_offset))
            yield found
        if self._frame.footer is not None:
            self.end_offset = self._frame.footer.end_offset

    def frame_problems(self) -> Iterator[str]:
        """Yield the problems of the footer, after the walk."""
        footer = self._frame.footer
        if footer is not None and footer.max_timestamp_ms < self._max_timestamp_ms:
            yield (
                f"its footer gives {footer.max_timestamp_ms} as the largest timestamp, and a"
                f" record has {self._max_timestamp_ms}"
            )

    def index_problems(self) -> Iterator[str]:
        """Yield the problems of the index, after the walk."""
        if self._index_error is not None:
            yield self._index_error
        elif self._index is not None and not self._has_bad:
            problem = self._index.end()
            if problem is not None:
                yield problem

    def checkpoint_problems(self) -> Iterator[str]:
        """Yield the differences between checkpoint and segment, after the walk."""
        known = self._checkpoint
        if known is None:
            return
        if (known.recovery_position, known.recovery_offset) not in self._boundaries:
            yield (
                f"its recovery point, offset {known.recovery_offset} at position"
                f" {known.recovery_position}, is not the end of a batch of {self.path}"
            )
        if self._kept_index is not None and not self._has_bad:
            problem = self._kept_index.end()
            if problem is not None:
                yield f"in its index, {problem}"

    def _compare(self, found: ValidBatch) -> None:
        for check in (self._index, self._kept_index):
            if check is not None:
                check.batch(
                    found.offset, found.position, max_timestamp_before=self._max_timestamp_ms
                )
        self._max_timestamp_ms = max(self._max_timestamp_ms, found.header.max_timestamp_ms)

    def _stored_index(self) -> IndexCheck | None:
        path = self.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
        try:
            data = read_whole(self._disk, path)
        except FileNotFoundError:
            return None
        index = OffsetIndex.from_bytes(data, base_offset=self.base_offset, interval_bytes=1)
        if index is None:
            self._index_error = index_problem(data, f"{self._disk.root}/{path}")
            return None
        return IndexCheck(index)

    def _index_of_checkpoint(self) -> IndexCheck | None:
        if self._checkpoint is None:
            return None
        index = OffsetIndex.from_bytes(
            self._checkpoint.index, base_offset=self.base_offset, interval_bytes=1
        )
        return None if index is None else IndexCheck(index)
