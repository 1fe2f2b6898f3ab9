"""Verification of all files below a path: checksums, and consistency between files.

Decides; reads through a disk that it never writes. Memory is bounded by a piece of a file, the
index of one segment, and the contents of the small files.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from tidelog.broker.inspection.dump import index_problem
from tidelog.broker.inspection.file_kinds import FileKind, kind_of, number_in, topic_place
from tidelog.broker.inspection.findings import FileCheck, Problems
from tidelog.broker.inspection.log_check import LogCheck
from tidelog.broker.inspection.small_files import (
    SMALL_FILES,
    read_small,
    read_whole,
    small_file_line,
)
from tidelog.broker.inspection.stored_keys import StoredKeys
from tidelog.broker.partitions.data_directory import NODE_NAME, NodeIdentity
from tidelog.broker.partitions.replica_manifest import MANIFEST_NAME, ManifestContent
from tidelog.coordinator.raft_node.storage import StoredSnapshot
from tidelog.logstore.disk.disk import ReadableDisk
from tidelog.logstore.segments.offset_index import OffsetIndex

_OF_A_LOG = frozenset({FileKind.SEGMENT, FileKind.CHECKPOINT})
_NOTES = {
    FileKind.STAGING_FILE: "left by a write that did not finish; the broker ignores it",
    FileKind.SET_ASIDE: "set aside by a start, because it overlapped another segment",
    FileKind.UNKNOWN: "not a file of tidelog",
}


def verify(
    disk: ReadableDisk, paths: Sequence[str], *, is_whole: bool, keys: StoredKeys | None = None
) -> Iterator[FileCheck]:
    """Yield the findings of each file; paths are sorted and relative to the disk's root.

    `is_whole` if they are all files below some directory. With `keys`, sealed batches are opened.

    Raises:
        OSError: The disk failed.
    """
    for directory, group in groupby(paths, key=_directory_of):
        files = list(group)
        end_offset = None
        if any(kind_of(path) in _OF_A_LOG for path in files):
            log = LogCheck(disk, files, is_whole=is_whole, keys=keys)
            yield from log.all_findings()
            end_offset = log.end_offset
        segments = {number_in(path) for path in files if kind_of(path) is FileKind.SEGMENT}
        for path in files:
            kind = kind_of(path)
            if kind is FileKind.SNAPSHOT:
                yield _snapshot_findings(
                    disk, path, min(segments, default=None), end_offset=end_offset
                )
            elif kind in SMALL_FILES and kind is not FileKind.CHECKPOINT:
                yield _small_file_findings(disk, path, kind)
            elif kind is FileKind.INDEX and number_in(path) not in segments:
                yield _lonely_index_findings(disk, path, is_whole=is_whole)
            elif kind is FileKind.DELETION_MARKER:
                yield FileCheck(
                    path, note=f"all records below offset {number_in(path)} were deleted"
                )
            elif kind in _NOTES:
                yield FileCheck(path, note=_NOTES[kind])
        if is_whole and any(path == _in(directory, NODE_NAME) for path in files):
            yield from _check_manifest(disk, directory, paths)


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]


def _in(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _small_file_findings(disk: ReadableDisk, path: str, kind: FileKind) -> FileCheck:
    found = read_small(disk, path, kind)
    return FileCheck(path, (found,) if isinstance(found, str) else ())


def _snapshot_findings(
    disk: ReadableDisk, path: str, first_offset: int | None, *, end_offset: int | None
) -> FileCheck:
    """Check a snapshot of the metadata, and that the log continues it."""
    problems = Problems()
    line = small_file_line(disk, path, FileKind.SNAPSHOT)
    if "reason" in line:
        problems.add(str(line["reason"]))
        return FileCheck(path, problems.all())
    snapshot = read_small(disk, path, FileKind.SNAPSHOT)
    assert isinstance(snapshot, StoredSnapshot)
    index = snapshot.meta.index
    if first_offset is not None and first_offset > index:
        problems.add(f"the log begins with entry {first_offset + 1}, behind its end, entry {index}")
    note = ""
    if end_offset is not None and end_offset < index:
        note = f"the log ends before it, with entry {end_offset}; the next start recreates the log"
    return FileCheck(path, problems.all(), note)


def _lonely_index_findings(disk: ReadableDisk, path: str, *, is_whole: bool) -> FileCheck:
    data = read_whole(disk, path)
    index = OffsetIndex.from_bytes(data, base_offset=number_in(path), interval_bytes=1)
    problems = () if index is not None else (index_problem(data, f"{disk.root}/{path}"),)
    note = "its segment is missing; the next start removes it" if is_whole else ""
    return FileCheck(path, problems, note)


def _check_manifest(
    disk: ReadableDisk, directory: str, paths: Sequence[str]
) -> Iterator[FileCheck]:
    """Check that all replicas that were created in a data directory exist."""
    manifest_path = _in(directory, MANIFEST_NAME)
    if manifest_path not in paths:
        identity = read_small(disk, _in(directory, NODE_NAME), FileKind.NODE)
        if isinstance(identity, NodeIdentity) and identity.keeps_manifest:
            yield FileCheck(
                manifest_path, ("it is missing: the replicas that were created here are unknown",)
            )
        return
    manifest = read_small(disk, manifest_path, FileKind.REPLICAS)
    if not isinstance(manifest, ManifestContent):
        return
    places = {topic_place(each) for each in dict.fromkeys(map(_directory_of, paths))}
    there = {(place.topic_id, place.partition) for place in places if place is not None}
    problems = Problems()
    for topic_id, numbers in manifest.replicas:
        for number in numbers:
            if (topic_id, number) not in there:
                problems.add(f"partition {number} of topic {topic_id.hex()} has lost its files")
    if problems:
        yield FileCheck(manifest_path, problems.all())
