"""Repair of indexes, for logs that no broker uses.

Decides which indexes to recreate; writes through a `Disk`. A recreated index is the one that a
broker would write.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing

from tidelog.broker.inspection.file_kinds import FileKind, kind_of, number_in
from tidelog.broker.inspection.findings import FileCheck
from tidelog.broker.inspection.segment_walk import read_frame
from tidelog.logstore.config import LogConfig
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.segments.offset_index import index_of_batches, write_index
from tidelog.logstore.segments.segment import INDEX_SUFFIX, LOG_SUFFIX
from tidelog.wire.errors import DataDirectoryError


def repair_indexes(disk: Disk, paths: Sequence[str]) -> Iterator[FileCheck]:
    """Recreate the index of each sealed segment in `paths`; return the results.

    The path of an index stands for its segment. Each index is replaced at once, durably. Other
    files are not touched.

    Raises:
        OSError: The disk is full or failed; no index is worse than before.
    """
    segments: dict[str, None] = {}
    for path in paths:
        if kind_of(path) is FileKind.SEGMENT:
            segments[path] = None
        elif kind_of(path) is FileKind.INDEX:
            segments[path.removesuffix(INDEX_SUFFIX) + LOG_SUFFIX] = None
    for path in segments:
        yield _repair(disk, path)


def _repair(disk: Disk, path: str) -> FileCheck:
    index_path = path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
    if not disk.exists(path):
        return FileCheck(index_path, note="its segment is missing: it is not recreated")
    with closing(disk.open(path)) as file:
        try:
            frame = read_frame(file, f"{disk.root}/{path}")
        except DataDirectoryError as error:
            return FileCheck(index_path, (str(error),))
        if frame.footer is None:
            return FileCheck(path, note="not sealed: it has no index file")
        index = index_of_batches(
            file,
            base_offset=number_in(path),
            end_position=frame.end_position,
            config=LogConfig(),
        )
    write_index(disk, index_path, index)
    return FileCheck(index_path, note=f"{len(index)} entries")
