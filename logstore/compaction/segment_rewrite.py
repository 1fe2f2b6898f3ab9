"""Rewrite of a run of segments into one cleaned file beside them.

The log stays unchanged: the file has a temporary name, which a start removes. It becomes part of
the log when `logstore.compaction.segment_swap` replaces the old segments by it.
"""

from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Final, final

import msgspec
from crc32c import crc32c

from tidelog.logstore.compaction.batch_cleaner import BatchCleaner, CleaningRules
from tidelog.logstore.config import SEGMENT_BYTES_LIMIT, KiB, MiB
from tidelog.logstore.disk.disk import Disk, File
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.segments.gap_scan import Gap, scan_for_gaps
from tidelog.logstore.segments.log_position import OffsetPosition
from tidelog.logstore.segments.offset_index import OffsetIndex
from tidelog.logstore.segments.segment import Segment
from tidelog.logstore.segments.segment_format import (
    SEGMENT_HEADER_SIZE,
    SegmentFooter,
    SegmentHeader,
)
from tidelog.wire.batch.record_batch import parse_header, stamp_replica
from tidelog.wire.env.env import BytesLike

BATCH_COST_BYTES: Final = 4 * KiB
"""Minimum cost of a batch, so that very small batches do not use up a processor."""
_WRITE_BYTES: Final = 1 * MiB


class RewriteFailedError(Exception):
    """The cleaned file cannot replace the segments; they stay unchanged."""


class SegmentRewritePlan(msgspec.Struct, frozen=True):
    """Parameters of a rewrite."""

    header: SegmentHeader
    """Header of the new file."""
    rules: Sequence[CleaningRules]
    """Rules of each segment."""
    leader_epochs: LeaderEpochs
    """Leader epochs of the log; they must not change meanwhile."""
    cleaned_at_ms: int | None
    index_interval_bytes: int


class _Source(msgspec.Struct, frozen=True):
    """The batches of one old segment."""

    path: str
    start: OffsetPosition
    end: OffsetPosition


@final
class SegmentRewrite:
    """Rewrite of one run of sealed segments, in steps that touch only files."""

    def __init__(self, segments: Sequence[Segment], plan: SegmentRewritePlan, disk: Disk) -> None:
        """Rewrite `segments`, which are consecutive."""
        self.segments = segments
        self._plan = plan
        self._disk = disk
        self.temporary = f"{segments[0].path}.cleaned.tmp"
        self._sources = [
            _Source(
                segment.path,
                OffsetPosition(segment.base_offset, SEGMENT_HEADER_SIZE),
                OffsetPosition(segment.end_offset, segment.end_position),
            )
            for segment in segments
        ]
        sealed_at_ms = segments[-1].sealed_at_ms
        assert sealed_at_ms is not None
        self._sealed_at_ms = sealed_at_ms
        self.index = OffsetIndex(
            base_offset=plan.header.base_offset, interval_bytes=plan.index_interval_bytes
        )
        self._position = SEGMENT_HEADER_SIZE
        self._max_timestamp_ms = 0
        self._file: File | None = None
        self._pending = bytearray()
        self._crc = self._batches_crc = self._old_crc = 0
        self._walk = self._steps()
        self.is_done = False
        self.has_changed = False
        """Whether the new file differs from the old segments."""
        self.gap: Gap | None = None
        """The damage that ended the rewrite."""

    def run(self, cost_bytes: int) -> int:
        """Continue for about `cost_bytes`, and return the actual cost; blocks.

        When `is_done`, the file is on the disk and was read back.

        Raises:
            RewriteFailedError: Something is damaged, or the file would be too long.
            OSError: The disk is full or failed.
        """
        spent = 0
        for step in self._walk:
            spent += step
            if spent >= cost_bytes:
                return spent
        self.is_done = True
        return spent

    @property
    def footer(self) -> SegmentFooter:
        """Footer of the new file."""
        return SegmentFooter(
            self._sources[-1].end.offset,
            self._position,
            self._max_timestamp_ms,
            self._sealed_at_ms,
            self._plan.cleaned_at_ms,
        )

    def abandon(self) -> None:
        """Remove the new file; a start removes it if that fails."""
        self._walk.close()
        if self._file is not None:
            self._file.close()
            self._file = None
        with suppress(OSError):
            self._disk.remove(self.temporary)

    def _steps(self) -> Generator[int, None, None]:
        self._disk.remove(self.temporary)
        file = self._file = self._disk.open(self.temporary, create=True)
        self._pending += self._plan.header.to_bytes()
        cleaner = BatchCleaner(self._plan.rules[0])
        for source, cleaner.rules in zip(self._sources, self._plan.rules, strict=True):
            yield from self._copy(file, source, cleaner)
        self._take(file, cleaner.end())
        self._pending += self.footer.to_bytes()
        self._write(file)
        file.sync()
        is_same = self._batches_crc == self._old_crc and self.footer == self.segments[0].footer()
        self.has_changed = len(self.segments) > 1 or not is_same
        yield from self._read_back(file)
        file.close()
        self._file = None

    def _copy(
        self, file: File, source: _Source, cleaner: BatchCleaner
    ) -> Generator[int, None, None]:
        """Write the cleaned batches of one segment; yield the costs."""
        old = self._disk.open(source.path)
        try:
            for found in scan_for_gaps(
                old,
                start=source.start,
                end=source.end,
                leader_epochs=self._plan.leader_epochs,
            ):
                if isinstance(found, Gap):
                    self.gap = found
                    raise RewriteFailedError(f"{source.path} is damaged at offset {found.offset}")
                batch = old.read_at(found.position, found.header.size)
                self._old_crc = crc32c(batch, self._old_crc)
                self._take(file, cleaner.take(found.header, batch))
                yield max(found.header.size, BATCH_COST_BYTES)
        finally:
            old.close()

    def _take(self, file: File, left: Sequence[BytesLike]) -> None:
        for part in left:
            batch = bytearray(part)
            header = parse_header(batch)
            assert header is not None
            # All bytes before it are on the disk once it can be read.
            stamp_replica(memoryview(batch), durable_position=self._position)
            self.index.add(
                header.base_offset, self._position, max_timestamp_before=self._max_timestamp_ms
            )
            self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp_ms)
            self._position += header.size
            if self._position > SEGMENT_BYTES_LIMIT:
                raise RewriteFailedError(f"{self.temporary} would be longer than a segment may be")
            self._batches_crc = crc32c(batch, self._batches_crc)
            self._pending += batch
        if len(self._pending) >= _WRITE_BYTES:
            self._write(file)

    def _write(self, file: File) -> None:
        file.write_at(file.size(), [self._pending])
        self._crc = crc32c(self._pending, self._crc)
        self._pending = bytearray()

    def _read_back(self, file: File) -> Generator[int, None, None]:
        """Check that the disk returns the written bytes."""
        file.drop_cache()
        crc, position, size = 0, 0, file.size()
        while position < size:
            data = file.read_at(position, min(_WRITE_BYTES, size - position))
            if not data:
                break
            crc = crc32c(data, crc)
            position += len(data)
            yield len(data)
        if crc != self._crc:
            raise RewriteFailedError(
                f"the disk returned other bytes of {self.temporary} than written"
            )
