"""Dump of all contents of files, as lines; every file of a data directory is readable.

Decides; reads through a disk that it never writes. A torn or damaged range gets a line where it is
found, and the valid data behind it follows.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from shlex import quote
from typing import Final, final

import msgspec

from tidelog.broker.inspection.contents import content_lines
from tidelog.broker.inspection.file_kinds import Content, FileKind, content_of, kind_of, number_in
from tidelog.broker.inspection.rows import OffsetFilter, Row, bad, named_fields
from tidelog.broker.inspection.segment_walk import BadRange, SegmentFrame, read_frame, walk
from tidelog.broker.inspection.small_files import SMALL_FILES, read_whole, small_file_line
from tidelog.broker.inspection.stored_keys import LockedBatchError, StoredKeys
from tidelog.logstore.disk.disk import File, ReadableDisk
from tidelog.logstore.segments.gap_scan import ValidBatch
from tidelog.logstore.segments.offset_index import FORMAT_VERSION as INDEX_VERSION
from tidelog.logstore.segments.offset_index import OffsetIndex, version_of_index
from tidelog.logstore.segments.segment_format import FORMAT_VERSION, SegmentHeader
from tidelog.wire.batch import record_batch
from tidelog.wire.batch.compression import CODEC_NAMES
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import DataDirectoryError, WireFormatError

_SHOWN_BYTES_MAX = 64
_CODECS: Final = {int(codec): name for name, codec in CODEC_NAMES.items()}
_FLAGS: Final = {
    record_batch.FLAG_LOG_APPEND_TIME: "log_append_time",
    record_batch.FLAG_TRANSACTIONAL: "transactional",
    record_batch.FLAG_CONTROL: "control",
    record_batch.FLAG_QUEUE_FIELDS: "queue_fields",
    record_batch.FLAG_CHUNKS: "chunks",
    record_batch.FLAG_SPARSE: "sparse",
    record_batch.FLAG_SEALED: "sealed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """Options of a dump."""

    wanted: OffsetFilter
    """Offsets to dump; batches and records that touch none of them are left out."""
    with_records: bool = False
    """Whether to dump records besides batches; entries of journals and metadata are always
    dumped."""
    keys: StoredKeys | None = None
    """What opens sealed batches; without it, their records are left out."""


def dump(disk: ReadableDisk, paths: Iterable[str], options: DumpOptions) -> Iterator[Row]:
    """Yield the contents of files, in the order given; paths are relative to the disk's root.

    Raises:
        OSError: The disk failed.
    """
    for path in paths:
        yield from _dump_file(disk, path, options)


def _dump_file(disk: ReadableDisk, path: str, options: DumpOptions) -> Iterator[Row]:
    kind = kind_of(path)
    if kind in SMALL_FILES:
        yield small_file_line(disk, path, kind)
    elif kind in (FileKind.SEGMENT, FileKind.SET_ASIDE):
        with closing(disk.open(path)) as file:
            yield from _SegmentDump(disk, path, file, options=options).lines()
    elif kind is FileKind.INDEX:
        yield from _index_lines(disk, path, options.wanted)
    elif kind is FileKind.DELETION_MARKER:
        yield {"file": path, "type": kind.value, "log_start_offset": number_in(path)}
    else:
        yield _other_line(disk, path, kind)


@final
class _SegmentDump:
    """The lines of one segment."""

    def __init__(self, disk: ReadableDisk, path: str, file: File, *, options: DumpOptions) -> None:
        self._path = path
        self._name = f"{disk.root}/{path}"
        self._file = file
        self._options = options

    def lines(self) -> Iterator[Row]:
        path = self._path
        try:
            frame = read_frame(self._file, self._name)
        except DataDirectoryError as error:
            yield bad(path, str(error), position=0)
            return
        base_offset = number_in(path) if frame.header is None else frame.header.base_offset
        if frame.footer is not None and not self._options.wanted.touches(
            base_offset, frame.footer.end_offset
        ):
            return
        if frame.header is None:
            yield bad(path, "the header of the segment is torn or damaged", position=0)
        else:
            yield self._header_line(frame.header)
        directory = self._name.rpartition("/")[0]
        content = content_of(directory, frame.header.topic_id if frame.header else None)
        yield from self._batch_lines(frame, base_offset, content)
        if frame.footer is not None:
            footer = frame.footer
            yield {"file": path, "type": "footer", "position": footer.end_position, **_of(footer)}

    def _header_line(self, header: SegmentHeader) -> Row:
        return {
            "file": self._path,
            "type": "segment",
            "format_version": FORMAT_VERSION,
            **_of(header),
        }

    def _batch_lines(
        self, frame: SegmentFrame, base_offset: int, content: Content
    ) -> Iterator[Row]:
        path, wanted = self._path, self._options.wanted
        for found in walk(self._file, frame, base_offset):
            if isinstance(found, BadRange):
                yield bad_line(path, found)
                continue
            if not wanted.touches(found.offset, found.end_offset):
                if found.offset >= wanted.end:
                    return
                continue
            yield {
                "file": path,
                "type": "batch",
                "position": found.position,
                **_of(found.header),
                "codec": _CODECS.get(found.header.codec),
                "flag_names": flag_names(found.header.flags),
            }
            if self._options.with_records or content is not Content.RECORDS:
                yield from self._content_lines(found, content, frame.header)

    def _content_lines(
        self, found: ValidBatch, content: Content, owner: SegmentHeader | None
    ) -> Iterator[Row]:
        header, keys, where = found.header, self._options.keys, {"position": found.position}
        if header.is_sealed and (keys is None or owner is None):
            return
        batch: BytesLike = self._file.read_at(found.position, header.size)
        try:
            if keys is not None and owner is not None:
                header, batch = keys.open(owner, header, batch)
            yield from content_lines(
                self._path, header, batch, content=content, wanted=self._options.wanted
            )
        except LockedBatchError as error:
            line: Row = {"file": self._path, "type": "sealed", **where, "offset": found.offset}
            yield {**line, "end_offset": found.end_offset, "reason": str(error)}
        except WireFormatError as error:
            yield bad(self._path, str(error), **where, offset=found.offset)


def bad_line(path: str, found: BadRange) -> Row:
    """Return the line for a bad range of a segment."""
    return bad(
        path,
        found.reason,
        position=found.position,
        end_position=found.end_position,
        offset=found.offset,
        end_offset=found.end_offset,
    )


def _index_lines(disk: ReadableDisk, path: str, wanted: OffsetFilter) -> Iterator[Row]:
    data = read_whole(disk, path)
    base_offset = number_in(path)
    index = OffsetIndex.from_bytes(data, base_offset=base_offset, interval_bytes=1)
    if index is None:
        yield bad(path, index_problem(data, f"{disk.root}/{path}"), position=0)
        return
    yield {
        "file": path,
        "type": "index",
        "format_version": INDEX_VERSION,
        "base_offset": base_offset,
        "count": len(index),
    }
    for offset, position, before_ms in index.entries():
        if wanted.touches(offset, offset + 1):
            yield {
                "file": path,
                "type": "index_entry",
                "offset": offset,
                "position": position,
                "max_timestamp_before_ms": before_ms,
            }


def flag_names(flags: int) -> list[str]:
    """Return the names of a batch's flags, except for the codec."""
    return [name for flag, name in _FLAGS.items() if flags & flag]


def index_problem(data: bytes, name: str) -> str:
    """Return the reason for which the bytes of an index are rejected; `name` is its path."""
    version = version_of_index(data)
    if version not in (None, INDEX_VERSION):
        return (
            f"{name} has format version {version}, this tidelog reads {INDEX_VERSION}; use the"
            f" version that wrote it, or recreate it: {_repair(name)}"
        )
    return f"it does not match its name, its length and its CRC-32C; {_recreation(name)}"


def missing_index(segment_name: str) -> str:
    """Return the problem of the missing index of a sealed segment, whose path is given."""
    return f"it is missing; {_recreation(segment_name)}"


def _recreation(name: str) -> str:
    return f"the broker recreates it when a read needs it, or this command: {_repair(name)}"


def _repair(name: str) -> str:
    return f"tidelog log repair-index {quote(name)}"


def _other_line(disk: ReadableDisk, path: str, kind: FileKind) -> Row:
    with closing(disk.open(path)) as file:
        size = file.size()
        shown = file.read_at(0, _SHOWN_BYTES_MAX)
    line: Row = {"file": path, "type": kind.value, "size_bytes": size}
    if kind is FileKind.LOCK:
        line["process"] = shown.decode("ascii", "replace").strip()
    return line


def _of(declared: msgspec.Struct) -> Row:
    return named_fields(declared)
