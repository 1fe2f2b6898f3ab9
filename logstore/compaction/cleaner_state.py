"""Compaction state of one log: its clean offset, and the swaps of its files.

A cleaning runs beside the log, maybe for minutes. Every other change of existing records
(truncation, repair, retention, the removal of records, damage, closing) aborts it, because the new
files may not match the log any more.
"""

from typing import final

from tidelog.logstore.compaction.policy import SealedSegment
from tidelog.logstore.compaction.segment_rewrite import SegmentRewrite
from tidelog.logstore.compaction.segment_swap import SegmentSwap
from tidelog.logstore.config import LogConfig
from tidelog.logstore.flush import FlushState
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment import Segment
from tidelog.logstore.segments.segment_list import SegmentList


@final
class CleanerState:
    """The clean offset of one log, which has one cleaning and one swap of files at a time.

    Invariant: no record below `clean_offset` is superseded by a later record below it. If a repair
    has restored records, `clean_offset` is 0.
    """

    def __init__(
        self,
        directory: str,
        files: FileCache,
        segments: SegmentList,
        *,
        flush_state: FlushState,
        clean_offset: int,
    ) -> None:
        """Start with `segments`, which are clean below `clean_offset`."""
        self._directory = directory
        self._files = files
        self._segments = segments
        self._flush_state = flush_state
        self.clean_offset = clean_offset
        self.generation = 0
        """Grows with each abort: a cleaning of an older generation must not change the log."""

    def abort(self, *, clean_offset_max: int | None = None) -> None:
        """Abort a running cleaning; lower the clean offset to `clean_offset_max`, if given."""
        self.generation += 1
        if clean_offset_max is not None:
            self.clean_offset = min(self.clean_offset, clean_offset_max)

    def sealed(self, clean_offset: int) -> list[tuple[SealedSegment, Segment]]:
        """Return the segments whose files may be replaced, oldest first.

        Only segments below the last checkpoint, where a start trusts footers. Times of earlier
        cleanings count only below `clean_offset`: above it, repaired records may be younger.
        """
        bound = self._flush_state.checkpoint_base_offset
        return [
            (_described(segment, clean_offset), segment)
            for segment in self._segments.sealed
            if segment.end_offset <= bound
        ]

    def begin_swap(
        self, rewrite: SegmentRewrite, generation: int, config: LogConfig
    ) -> SegmentSwap | None:
        """Return the swap of a rewrite of `generation`; `None` if it is too late.

        Until it has ended, only appends and flushes may change files of the log.

        Raises:
            OSError: The disk failed.
        """
        assert rewrite.is_done
        if generation != self.generation:
            return None
        return SegmentSwap(
            self._files, self._directory, self._segments, rewrite=rewrite, config=config
        )

    def commit(self, swap: SegmentSwap, generation: int) -> bool:
        """Commit the new files and return true; return false and keep the old ones if too late.

        Raises:
            OSError: The disk failed.
        """
        if generation != self.generation:
            swap.cancel()
            return False
        swap.commit()
        return True

    def complete(self, end_offset: int, generation: int) -> None:
        """Move the clean offset to `end_offset`, after the last swap has ended."""
        if generation == self.generation:
            self.clean_offset = end_offset
            self._flush_state.request_checkpoint()


def _described(segment: Segment, clean_offset: int) -> SealedSegment:
    assert segment.sealed_at_ms is not None
    return SealedSegment(
        segment.base_offset,
        segment.end_offset,
        segment.size_bytes,
        segment.sealed_at_ms,
        segment.cleaned_at_ms if segment.end_offset <= clean_offset else None,
    )
