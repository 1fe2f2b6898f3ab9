"""Putting one file in the place of a run of segments so that a crash leaves the old or the new.

The old index goes first, for good: with the new file it would lead anywhere. Then one rename over
the first old file decides. Behind it the names are made durable before another old file goes; one
that a crash leaves behind lies wholly within a segment whose footer says that it was cleaned, and
recovery removes it.
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

    Readers go on: before `commit` with the old files, and who has one of them open to its end.
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
        """Put what `rewrite` has written in the place of what it read.

        Raises:
            OSError: The disk failed.
        """
        self._files = files
        self._directory = directory
        self._segments = segments
        self._rewrite = rewrite
        self._old = rewrite.segments
        self._new = Segment(files, directory, self._old[0].base_offset)
        # In memory until it is decided: nobody writes it anew while its file is to be gone.
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
        """Let the new file count, from now on for all readers; durable after `finish`.

        Raises:
            OSError: The disk failed; the old files count on.
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
        """Make it durable, then remove what it stands for; blocks.

        Raises:
            OSError: The disk failed: nobody knows which of the files count after a power cut, the
                log must go offline. The next start finds out.
        """
        self._files.disk.sync_directory(self._directory)
        self._new.keep_index(self._rewrite.index)
        for segment in self._old[1:]:
            segment.remove_files()

    def end(self) -> None:
        """Release the index, after `finish` has run."""
        self._new.unpin_index()
