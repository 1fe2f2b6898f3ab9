"""One segment of a log: a file of batches and its sparse index."""

from collections.abc import Sequence
from contextlib import closing
from typing import final

from tidelog.logstore.config import LogConfig
from tidelog.logstore.disk.disk import PASSING_ERRNOS, File
from tidelog.logstore.segments.batch_scanner import FileWindow, walk_headers
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.offset_index import OffsetIndex, index_of_batches
from tidelog.logstore.segments.segment_format import (
    SEGMENT_FOOTER_SIZE,
    SEGMENT_HEADER_SIZE,
    SegmentFooter,
    SegmentHeader,
    parse_segment_footer,
    parse_segment_header,
)
from tidelog.wire.batch.record_batch import HEADER_SIZE, BatchHeader

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
_DIGITS = 20


def segment_path(directory: str, base_offset: int) -> str:
    """Return the path of a segment's file."""
    return f"{directory}/{base_offset:0{_DIGITS}d}{LOG_SUFFIX}"


def base_offset_of(name: str, suffix: str) -> int | None:
    """Return the base offset in the name of a segment's file, `None` for other names."""
    stem = name.removesuffix(suffix)
    is_ours = stem != name and len(stem) == _DIGITS and stem.isascii() and stem.isdigit()
    return int(stem) if is_ours else None


@final
class Segment:
    """A run of offsets in one file.

    Invariant: batches fill the bytes from `SEGMENT_HEADER_SIZE` to `end_position` without gaps,
    with offsets growing from `base_offset` to below `end_offset`, except for damage.
    """

    def __init__(self, files: FileCache, directory: str, base_offset: int) -> None:
        """Describe a segment; `create`, `open_sealed` or recovery fill it in."""
        self._files = files
        self.path = segment_path(directory, base_offset)
        self.index_path = self.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
        self.base_offset = base_offset
        self.end_offset = base_offset
        """Offset after the last record."""
        self.end_position = SEGMENT_HEADER_SIZE
        """Position after the last batch."""
        self.max_timestamp_ms = 0
        """Largest timestamp; 0 when empty."""
        self.first_append_ms: int | None = None
        """Time of the first append by the broker's clock; `None` if empty or sealed."""
        self.sealed_at_ms: int | None = None
        """Time of the seal; `None` for the active segment."""
        self.cleaned_at_ms: int | None = None
        """Time of the first compaction that reached its end; `None` before that."""
        self.trusted_position = SEGMENT_HEADER_SIZE
        """Position from which this process wrote or checked the bytes; bytes before it are checked
        at each read from the disk."""
        self._last_batch: tuple[int, int] | None = None
        """(offset, position) of the last appended batch, while it is the last one. Followers
        continue there without a read of headers."""
        self.index: OffsetIndex | None = None
        """Index of the active segment; indexes of sealed segments are loaded on demand."""

    @property
    def is_sealed(self) -> bool:
        """Whether the segment accepts no more appends."""
        return self.sealed_at_ms is not None

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return self.end_position + (SEGMENT_FOOTER_SIZE if self.is_sealed else 0)

    def file(self) -> File:
        """Return the open file.

        Raises:
            OSError: The file cannot be opened.
        """
        return self._files.file(self.path)

    def create(self, header: SegmentHeader, config: LogConfig) -> None:
        """Create the file; its name is durable only after a sync of the directory.

        Raises:
            OSError: The disk is full or failed; no usable file is left behind.
        """
        self._files.forget(self.path)
        self._files.disk.remove(self.path)
        file = self._files.file(self.path, create=True)
        try:
            file.write_at(0, [header.to_bytes()])
        except OSError:
            self._files.forget(self.path)
            self._files.disk.remove(self.path)
            raise
        self.index = self._new_index(config)

    def read_header(self) -> SegmentHeader | None:
        """Return the header of the file, `None` when it is torn or damaged.

        Raises:
            OSError: The disk failed.
            DataDirectoryError: The file was written by a newer version.
        """
        name = f"{self._files.disk.root}/{self.path}"
        return parse_segment_header(self.file().read_at(0, SEGMENT_HEADER_SIZE), name)

    def read_footer(self) -> SegmentFooter | None:
        """Return the footer at the end of the file, `None` when there is none.

        Raises:
            OSError: The disk failed.
        """
        file = self.file()
        position = file.size() - SEGMENT_FOOTER_SIZE
        if position < SEGMENT_HEADER_SIZE:
            return None
        footer = parse_segment_footer(file.read_at(position, SEGMENT_FOOTER_SIZE))
        return footer if footer is not None and footer.end_position == position else None

    def open_sealed(self, footer: SegmentFooter) -> None:
        """Set the state from the footer, without reading batches."""
        self.end_offset = footer.end_offset
        self.end_position = footer.end_position
        self.max_timestamp_ms = footer.max_timestamp_ms
        self.sealed_at_ms = footer.sealed_at_ms
        self.cleaned_at_ms = footer.cleaned_at_ms
        self.trusted_position = footer.end_position

    def open_active(
        self, config: LogConfig, *, index: OffsetIndex | None, end_position: int, end_offset: int
    ) -> None:
        """Open the active segment for appends at `end_position`, without reading batches."""
        self.index = index if index is not None else self._new_index(config)
        self.end_position = self.trusted_position = end_position
        self.end_offset = end_offset

    def append(self, header: BatchHeader, batch: memoryview, *, base_offset: int) -> File:
        """Append one batch that the caller has stamped; return the file to sync.

        Raises:
            OSError: The disk is full or failed; the file is as it was, or `EIO` is raised.
        """
        file = self._write(batch)
        self.take_in(header, self.end_position, base_offset=base_offset)
        return file

    def append_run(self, headers: Sequence[BatchHeader], batches: memoryview) -> File:
        """Append batches that have their offsets; return the file to sync.

        Raises:
            OSError: As for `append`.
        """
        file = self._write(batches)
        for header in headers:
            self.take_in(header, self.end_position, base_offset=header.base_offset)
        return file

    def take_in(self, header: BatchHeader, position: int, *, base_offset: int) -> None:
        """Add the batch that is in the file at `position`."""
        assert self.index is not None, "only the active segment grows"
        self.index.add(base_offset, position, max_timestamp_before=self.max_timestamp_ms)
        self.max_timestamp_ms = max(self.max_timestamp_ms, header.max_timestamp_ms)
        self._last_batch = (base_offset, position)
        self.end_position = position + HEADER_SIZE + header.payload_length
        self.end_offset = base_offset + header.last_offset_delta + 1

    def seal(self, *, now_ms: int) -> dict[str, File]:
        """Write the footer and the index; return the files to sync, by path.

        Raises:
            OSError: The disk is full or failed; the segment is still active.
        """
        footer = SegmentFooter(self.end_offset, self.end_position, self.max_timestamp_ms, now_ms)
        file = self._files.file(self.path)
        try:
            file.write_at(self.end_position, [footer.to_bytes()])
        except OSError:
            file.truncate(self.end_position)
            raise
        return {self.path: file, **self.adopt(footer)}

    def adopt(self, footer: SegmentFooter) -> dict[str, File]:
        """Seal with a footer that is in the file; write the index, and return its file to sync.

        Raises:
            OSError: The disk failed.
        """
        index = self.index
        assert index is not None, "only the active segment can be sealed"
        index_file = self._write_index(index)
        self.end_offset = footer.end_offset
        self.max_timestamp_ms = max(self.max_timestamp_ms, footer.max_timestamp_ms)
        self.sealed_at_ms = footer.sealed_at_ms
        self.cleaned_at_ms = footer.cleaned_at_ms
        self.first_append_ms = None
        self.index = self._last_batch = None
        self._files.forget(self.index_path)
        self._files.index(self.index_path, lambda: index)
        return {} if index_file is None else {self.index_path: index_file}

    def footer(self) -> SegmentFooter:
        """Return the footer of a sealed segment."""
        assert self.sealed_at_ms is not None
        return SegmentFooter(
            self.end_offset,
            self.end_position,
            self.max_timestamp_ms,
            self.sealed_at_ms,
            self.cleaned_at_ms,
        )

    def replace_footer(self, footer: SegmentFooter) -> None:
        """Replace the footer of a sealed segment durably, and truncate the file to it; blocks.

        Raises:
            OSError: The disk is full or failed; the next start finds no footer.
        """
        file = self.file()
        file.truncate(footer.end_position)
        file.write_at(footer.end_position, [footer.to_bytes()])
        file.sync()
        self.end_offset = footer.end_offset
        self.end_position = footer.end_position
        self.max_timestamp_ms = footer.max_timestamp_ms
        self.sealed_at_ms = footer.sealed_at_ms
        self.cleaned_at_ms = footer.cleaned_at_ms

    def cut(self, position: int, end_offset: int, config: LogConfig) -> None:
        """Make this the active segment that ends at `position`; `cut_file` truncates the files.

        Raises:
            OSError: The disk failed.
        """
        assert SEGMENT_HEADER_SIZE <= position <= self.end_position
        self.index = self.loaded_index(config)
        self.index.truncate(position)
        self.end_position = position
        self.end_offset = end_offset
        self._last_batch = None
        self.trusted_position = min(self.trusted_position, position)
        self.sealed_at_ms = self.cleaned_at_ms = None
        if position == SEGMENT_HEADER_SIZE:
            self.first_append_ms = None

    def remove_index(self) -> None:
        """Remove the index file of a segment that is active again.

        Raises:
            OSError: The disk failed.
        """
        self._files.forget(self.index_path)
        self._files.disk.remove(self.index_path)

    def cut_file(self) -> None:
        """Truncate the bytes after the last batch durably; blocks.

        Raises:
            OSError: The disk failed.
        """
        file = self.file()
        file.truncate(self.end_position)
        file.sync()

    def start_of(self, offset: int, config: LogConfig) -> tuple[int, int]:
        """Return (offset, position) of a batch at or shortly before `offset`, to read from."""
        last = self._last_batch
        if last is not None and offset >= last[0]:
            return last
        entry = self.loaded_index(config).floor(offset)
        return entry if entry is not None else (self.base_offset, SEGMENT_HEADER_SIZE)

    def end_below(self, offset: int, config: LogConfig) -> tuple[int, int]:
        """Return (position, offset) after the last batch that ends at or below `offset`.

        Damaged bytes after that batch are not included.
        """
        if offset >= self.end_offset:
            return self.end_position, self.end_offset
        end_offset, end_position = self.start_of(offset - 1, config)
        for position, header in walk_headers(
            self.file(), end_position, start_offset=end_offset, end=self.end_position
        ):
            if header.next_offset > offset:
                break
            end_position, end_offset = position + header.size, header.next_offset
        return end_position, end_offset

    def has_batch_at(self, position: int, offset: int) -> bool:
        """Return whether a batch with a good header begins at `offset`.

        Raises:
            OSError: The disk failed.
        """
        header = FileWindow(self.file(), end=self.end_position, chunk_bytes=0).header(position)
        return header is not None and header.base_offset == offset

    def loaded_index(self, config: LogConfig) -> OffsetIndex:
        """Return the index: from memory, from its file, or rebuilt.

        An index has at most about 1 MB, and is read once for a whole segment.
        """
        if self.index is not None:
            return self.index
        return self._files.index(self.index_path, lambda: self._load_index(config))

    def rebuild_index(self, config: LogConfig) -> None:
        """Rebuild the index if it may lack batches; reads headers.

        The index is synced; blocks.

        Raises:
            OSError: The disk failed.
        """
        self._last_batch = None
        index = self._index_of_batches(config)
        if self.index is not None:
            self.index = index
            return
        self._write_index_durably(index)
        self._files.forget(self.index_path)
        self._files.index(self.index_path, lambda: index)

    def extend_index(
        self, headers: Sequence[BatchHeader], position: int, config: LogConfig
    ) -> None:
        """Add the last batches, which begin at `position`, to the index of a sealed segment.

        The index is synced; blocks.

        Raises:
            OSError: The disk failed.
        """
        index = self.loaded_index(config)
        index.truncate(position)
        for header in headers:
            # No batch before it has a larger timestamp; a search needs no more than that.
            index.add(header.base_offset, position, max_timestamp_before=self.max_timestamp_ms)
            position += header.size
        self._write_index_durably(index)

    def pin_index(self, config: LogConfig) -> None:
        """Keep the index of a sealed segment in memory, so that no reader recreates its file."""
        self.index = self.loaded_index(config)

    def unpin_index(self) -> None:
        """Release the index from memory; it is loaded on demand."""
        self.index = None

    def keep_index(self, index: OffsetIndex) -> None:
        """Write the index of a sealed segment and sync it; blocks.

        Raises:
            OSError: The disk failed.
        """
        self._write_index_durably(index)

    def remove_files(self) -> None:
        """Remove file and index; blocks. Readers that hold the file finish."""
        disk = self._files.disk
        disk.remove(self.index_path)
        disk.remove(self.path)

    def forget_files(self) -> None:
        """Drop open files before `remove_files` runs in another thread."""
        self._files.forget(self.path)
        self._files.forget(self.index_path)

    def _write(self, data: memoryview) -> File:
        file = self._files.file(self.path)
        try:
            file.write_at(self.end_position, [data])
        except OSError:
            file.truncate(self.end_position)
            raise
        return file

    def _load_index(self, config: LogConfig) -> OffsetIndex:
        try:
            file = self._files.open_apart(self.index_path)
        except FileNotFoundError:
            return self._rebuild_index(config)
        try:
            data = file.read_at(0, file.size())
        finally:
            file.close()
        index = OffsetIndex.from_bytes(
            data, base_offset=self.base_offset, interval_bytes=config.index_interval_bytes
        )
        return index if index is not None else self._rebuild_index(config)

    def _rebuild_index(self, config: LogConfig) -> OffsetIndex:
        index = self._index_of_batches(config)
        file = self._write_index(index)
        if file is not None:
            file.close()  # Readers do not wait for a sync.
        return index

    def _index_of_batches(self, config: LogConfig) -> OffsetIndex:
        return index_of_batches(
            self.file(),
            base_offset=self.base_offset,
            end_position=self.end_position,
            config=config,
        )

    def _write_index_durably(self, index: OffsetIndex) -> None:
        """Write the index if there is room, and sync it; its name is as durable as before."""
        file = self._write_index(index)
        if file is not None:
            with closing(file):
                file.sync()

    def _write_index(self, index: OffsetIndex) -> File | None:
        """Write the index if there is room; return the file to sync.

        The index can be rebuilt, so the sync is not needed for safety. Without it a power failure
        may leave a file with garbage, which looks like bit rot.
        """
        disk = self._files.disk
        # Always a new file: if the old one was only overwritten, a power failure could bring back
        # the index of a segment that was truncated since then and grew differently.
        disk.remove(self.index_path)
        try:
            file = self._files.open_apart(self.index_path, create=True)
            try:
                file.write_at(0, [index.to_bytes()])
            except OSError:
                file.close()
                raise
        except OSError as error:
            if error.errno not in PASSING_ERRNOS:
                raise
            disk.remove(self.index_path)
            return None
        return file

    def _new_index(self, config: LogConfig) -> OffsetIndex:
        return OffsetIndex(base_offset=self.base_offset, interval_bytes=config.index_interval_bytes)
