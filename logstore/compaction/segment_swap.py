"""Crash-safe swap of a run of segments for one cleaned file (Kafka: replaceSegments).

The swap removes the old index first and durably, because its positions are wrong for the new file.
Then one rename over the first old file commits. The names become durable before another old file
is removed. An old file that a crash leaves lies within a segment whose footer says that it was
cleaned, so recovery removes it.
"""

from typing import final

from tidelog.logstore.compaction.segment_rewrite import SegmentRewrite
from tidelog.logstore.config import LogConfig
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment import Segment
from tidelog.logstore.segments.segment_list import SegmentList


@final
class SegmentSwap:
    """One swap: `prepare` blocks, `commit` is one call, `finish` blocks.

    Readers continue: they use the old files before `commit`, and finish with files that are open.
    """

    def __init__(
        self,
        files: FileCache,
        directory: str,
        segments: SegmentList,
        *,
        rewrite: SegmentRewrite,
        config: LogConfig,
    ) -> None:
        """Replace the source segments of `rewrite` by its file.

        Raises:
            OSError: The disk failed.
        """
        self._files = files
        self._directory = directory
        self._segments = segments
        self._rewrite = rewrite
        self._old = rewrite.segments
        self._new = Segment(files, directory, self._old[0].base_offset)
        # In memory until the commit, so that no reader recreates the index file meanwhile.
        self._old[0].pin_index(config)

    def prepare(self) -> None:
        """Remove the index of the first old segment, durably; blocks.

        Raises:
            OSError: The disk failed.
        """
        self._files.disk.remove(self._old[0].index_path)
        self._files.disk.sync_directory(self._directory)

    def cancel(self) -> None:
        """Keep the old files; remove the new one."""
        if self._old[0].is_sealed:
            self._old[0].unpin_index()
        self._rewrite.abandon()

    def commit(self) -> None:
        """Replace the segments for all readers; durable after `finish`.

        Raises:
            OSError: The disk failed; the old files stay valid.
        """
        try:
            self._files.disk.rename(self._rewrite.temporary, self._new.path)
        except OSError:
            self.cancel()
            raise
        self._new.open_sealed(self._rewrite.footer)
        self._new.index = self._rewrite.index
        self._segments.replace(self._old, self._new)

    def finish(self) -> None:
        """Make the swap durable, then remove the other old files; blocks.

        Raises:
            OSError: The disk failed: the valid files after a power failure are unknown, so the log
                must go offline. The next start decides.
        """
        self._files.disk.sync_directory(self._directory)
        self._new.keep_index(self._rewrite.index)
        for segment in self._old[1:]:
            segment.remove_files()

    def end(self) -> None:
        """Release the index, after `finish` has run."""
        self._new.unpin_index()
