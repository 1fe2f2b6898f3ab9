"""Reading all that is durable of a log again, to find corruption before a reader needs it.

What is found bad around the batches of a segment (header, footer, index) is nowhere needed but in
its place, and is known: it is written anew. Gaps between batches are for readers to look at, who
say what is damaged.
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
"""What a batch costs at least, so that very small ones do not take all of a processor."""


@final
class SegmentScrub:
    """A walk through what is durable of one segment, in steps that touch nothing but files."""

    def __init__(
        self,
        segment: Segment,
        header: SegmentHeader,
        disk: Disk,
        *,
        end: OffsetPosition,
        leader_epochs: LeaderEpochs,
    ) -> None:
        """Walk to `end`; behind the end of a sealed one is its footer.

        `leader_epochs` are those of the log as it is now.

        Raises:
            OSError: The file cannot be opened.
        """
        self._segment = segment
        self._header = header
        self._disk = disk
        # Not by way of the cache of open files: others need what is in there.
        self._file = disk.open(segment.path)
        self._end = end
        self._leader_epochs = leader_epochs
        is_whole = segment.is_sealed and end == (segment.end_offset, segment.end_position)
        self._footer = segment.footer() if is_whole else None
        self._walk = self._steps()
        self.base_offset = segment.base_offset
        self.is_done = False
        self.gaps: list[Gap] = []
        """Where batches are missing or damaged, as far as it has come."""
        self.spoiled: list[str] = []
        """What was bad besides batches: `header`, `footer`, `index`."""

    def run(self, cost_bytes: int) -> int:
        """Go on for about `cost_bytes`, and return how many it were; blocks.

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

    def mend(self) -> bool:
        """Write anew what was spoiled; return whether `sync` is to follow.

        Not while another thread is at the log: it is changed in no other way than by appends.

        Raises:
            OSError: The disk failed.
        """
        segment, footer = self._segment, self._footer
        if "index" in self.spoiled:
            segment.remove_index()  # Whoever needs it first makes it anew.
        if "header" in self.spoiled:
            self._file.write_at(0, [self._header.to_bytes()])
        # The log may have been truncated since, and this be its active segment.
        is_as_it_was = segment.is_sealed and segment.footer() == footer
        if "footer" in self.spoiled and footer is not None and is_as_it_was:
            self._file.write_at(footer.end_position, [footer.to_bytes()])
        return bool(self.spoiled)

    def sync(self) -> None:
        """Make durable what was mended; blocks.

        Raises:
            OSError: The disk failed.
        """
        if not {"header", "footer"}.isdisjoint(self.spoiled):
            self._file.sync()
        if "index" in self.spoiled:
            # Else a power cut could bring it back.
            directory, _, _ = self._segment.index_path.rpartition("/")
            self._disk.sync_directory(directory)

    def _steps(self) -> Iterator[int]:
        """Look at one part after the other; yield what it cost."""
        file, end_position = self._file, self._end.position
        # What others have in the page cache stays there; what this brings there does not.
        is_warm = self._footer is None or file.is_cached(0, end_position)
        if file.read_at(0, SEGMENT_HEADER_SIZE) != self._header.to_bytes():
            self.spoiled.append("header")
        for found in scan_for_gaps(
            file,
            start=OffsetPosition(self._segment.base_offset, SEGMENT_HEADER_SIZE),
            end=self._end,
            leader_epochs=self._leader_epochs,
        ):
            if isinstance(found, Gap):
                self.gaps.append(found)
                yield found.end_position - found.position
            else:
                yield max(found.header.size, _BATCH_COST_BYTES)
        if self._footer is not None:
            footer = file.read_at(self._footer.end_position, SEGMENT_FOOTER_SIZE)
            if footer != self._footer.to_bytes():
                self.spoiled.append("footer")
            yield self._look_at_index()
        if not is_warm:
            file.drop_cache()

    def _look_at_index(self) -> int:
        try:
            file = self._disk.open(self._segment.index_path)
        except FileNotFoundError:
            return 0  # There was no room for it, or nobody has needed it yet.
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

    Every log has one, unless there was no room for the first; without it the next start would not
    know how far the log went.

    Raises:
        OSError: The disk failed.
    """
    try:
        checkpoint = read_small_file(disk, f"{directory}/{CHECKPOINT_NAME}", LogCheckpoint)
    except DamagedFileError:
        return True
    return checkpoint is None
