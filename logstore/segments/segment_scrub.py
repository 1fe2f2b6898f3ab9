"""Scrub of a log's durable bytes, which finds corruption before a reader does.

The scrub rewrites corrupt headers, footers and indexes of a segment, because their content is
known. It reports gaps between batches; a read of a gap then adds the damage.
"""

from collections.abc import Iterator
from typing import final

from tidelog.logstore.checkpoint import (
    CHECKPOINT_NAME,
    DamagedFileError,
    LogCheckpoint,
    read_small_file,
)
from tidelog.logstore.config import KiB
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.segments.gap_scan import Gap, scan_for_gaps
from tidelog.logstore.segments.log_position import OffsetPosition
from tidelog.logstore.segments.offset_index import OffsetIndex
from tidelog.logstore.segments.segment import Segment
from tidelog.logstore.segments.segment_format import (
    SEGMENT_FOOTER_SIZE,
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
)

_BATCH_COST_BYTES = 4 * KiB
"""Minimum cost of a batch, so that very small batches do not use up a processor."""


@final
class SegmentScrub:
    """Scrub of the durable part of one segment, in steps that touch only files."""

    def __init__(
        self,
        segment: Segment,
        header: SegmentHeader,
        disk: Disk,
        *,
        end: OffsetPosition,
        leader_epochs: LeaderEpochs,
    ) -> None:
        """Scrub up to `end`; a sealed segment has its footer after that.

        `leader_epochs` are the present ones of the log.

        Raises:
            OSError: The file cannot be opened.
        """
        self._segment = segment
        self._header = header
        self._disk = disk
        # Not through the file cache: other readers need its entries.
        self._file = disk.open(segment.path)
        self._end = end
        self._leader_epochs = leader_epochs
        is_whole = segment.is_sealed and end == (segment.end_offset, segment.end_position)
        self._footer = segment.footer() if is_whole else None
        self._walk = self._steps()
        self.base_offset = segment.base_offset
        self.is_done = False
        self.read_bytes = 0
        """Bytes that were read so far."""
        self.gaps: list[Gap] = []
        """Gaps that were found so far."""
        self.spoiled: list[str] = []
        """Corrupt parts besides batches: `header`, `footer`, `index`."""

    def run(self, cost_bytes: int) -> int:
        """Continue for about `cost_bytes`, and return the actual cost; blocks.

        Raises:
            OSError: The disk failed.
        """
        spent = 0
        for step in self._walk:
            spent += step
            if spent >= cost_bytes:
                return spent
        self.is_done = True
        return spent

    def repair(self) -> bool:
        """Rewrite the corrupt parts; return whether `sync` must follow.

        No other thread may use the log meanwhile, except for appends.

        Raises:
            OSError: The disk failed.
        """
        segment, footer = self._segment, self._footer
        if "index" in self.spoiled:
            segment.remove_index()  # The first reader rebuilds it.
        if "header" in self.spoiled:
            self._file.write_at(0, [self._header.to_bytes()])
        # The log may have been truncated since, and this may be its active segment.
        is_as_it_was = segment.is_sealed and segment.footer() == footer
        if "footer" in self.spoiled and footer is not None and is_as_it_was:
            self._file.write_at(footer.end_position, [footer.to_bytes()])
        return bool(self.spoiled)

    def sync(self) -> None:
        """Make the repair durable; blocks.

        Raises:
            OSError: The disk failed.
        """
        if not {"header", "footer"}.isdisjoint(self.spoiled):
            self._file.sync()
        if "index" in self.spoiled:
            # Otherwise a power failure could bring it back.
            directory, _, _ = self._segment.index_path.rpartition("/")
            self._disk.sync_directory(directory)

    def _steps(self) -> Iterator[int]:
        """Check one part after the other; yield the costs."""
        file, end_position = self._file, self._end.position
        # Pages that were cached before stay in the page cache; pages of the scrub do not.
        is_warm = self._footer is None or file.is_cached(0, end_position)
        if file.read_at(0, SEGMENT_HEADER_SIZE) != self._header.to_bytes():
            self.spoiled.append("header")
        self.read_bytes += SEGMENT_HEADER_SIZE
        for found in scan_for_gaps(
            file,
            start=OffsetPosition(self._segment.base_offset, SEGMENT_HEADER_SIZE),
            end=self._end,
            leader_epochs=self._leader_epochs,
        ):
            if isinstance(found, Gap):
                self.gaps.append(found)
                self.read_bytes += found.end_position - found.position
                yield found.end_position - found.position
            else:
                self.read_bytes += found.header.size
                yield max(found.header.size, _BATCH_COST_BYTES)
        if self._footer is not None:
            footer = file.read_at(self._footer.end_position, SEGMENT_FOOTER_SIZE)
            if footer != self._footer.to_bytes():
                self.spoiled.append("footer")
            index_bytes = self._look_at_index()
            self.read_bytes += SEGMENT_FOOTER_SIZE + index_bytes
            yield index_bytes
        if not is_warm:
            file.drop_cache()

    def _look_at_index(self) -> int:
        try:
            file = self._disk.open(self._segment.index_path)
        except FileNotFoundError:
            return 0  # There was no room for it, or no reader has needed it yet.
        try:
            data = file.read_at(0, file.size())
        finally:
            file.close()
        index = OffsetIndex.from_bytes(data, base_offset=self.base_offset, interval_bytes=1)
        if index is None:
            self.spoiled.append("index")
        return len(data)


def is_checkpoint_spoiled(disk: Disk, directory: str) -> bool:
    """Return whether the checkpoint of the log in `directory` is missing or damaged; blocks.

    Every log has one, unless there was no room for the first. Without it the next start would not
    know the end of the log.

    Raises:
        OSError: The disk failed.
    """
    try:
        checkpoint = read_small_file(disk, f"{directory}/{CHECKPOINT_NAME}", LogCheckpoint)
    except DamagedFileError:
        return True
    return checkpoint is None
