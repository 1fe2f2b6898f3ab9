"""Contents of the small files of a data directory.

Decides; reads through a disk that it never writes.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

import msgspec

from tidelog.broker.inspection.file_kinds import FileKind
from tidelog.broker.inspection.rows import Row, bad, named, named_fields
from tidelog.broker.partitions.data_directory import CleanShutdown, NodeIdentity, WantedRecovery
from tidelog.broker.partitions.idle_replicas import IdleLogsContent
from tidelog.broker.partitions.replica_manifest import ManifestContent
from tidelog.coordinator.controller.log_entries import decode_snapshot_records
from tidelog.coordinator.raft_node.storage import StoredSnapshot, Vote
from tidelog.logstore.checkpoint import (
    FORMAT_VERSION,
    DamagedFileError,
    LogCheckpoint,
    parse_small_file,
)
from tidelog.logstore.disk.disk import ReadableDisk
from tidelog.logstore.segments.offset_index import OffsetIndex
from tidelog.wire.errors import DataDirectoryError

SMALL_FILES: Final[Mapping[FileKind, type[Any]]] = {
    FileKind.CHECKPOINT: LogCheckpoint,
    FileKind.VOTE: Vote,
    FileKind.SNAPSHOT: StoredSnapshot,
    FileKind.NODE: NodeIdentity,
    FileKind.REPLICAS: ManifestContent,
    FileKind.IDLE_LOGS: IdleLogsContent,
    FileKind.CLEAN_SHUTDOWN: CleanShutdown,
    FileKind.RECOVERY: WantedRecovery,
}
"""The declared type of each file."""


def read_whole(disk: ReadableDisk, path: str) -> bytes:
    """Return all bytes of a file.

    Raises:
        OSError: The disk failed.
    """
    with closing(disk.open(path)) as file:
        return file.read_at(0, file.size())


def read_small(disk: ReadableDisk, path: str, kind: FileKind) -> msgspec.Struct | str:
    """Return the contents of a small file, or the reason that it cannot be read.

    Raises:
        OSError: The disk failed.
    """
    try:
        found: msgspec.Struct = parse_small_file(
            read_whole(disk, path), f"{disk.root}/{path}", SMALL_FILES[kind]
        )
    except (DamagedFileError, DataDirectoryError) as error:
        return str(error)
    return found


def small_file_line(disk: ReadableDisk, path: str, kind: FileKind) -> Row:
    """Return all contents of a small file, as one line.

    Raises:
        OSError: The disk failed.
    """
    content = read_small(disk, path, kind)
    if isinstance(content, str):
        return bad(path, content, position=0)
    fields = named_fields(content)
    if isinstance(content, LogCheckpoint):
        fields["index"] = _index_in(content)
    if isinstance(content, StoredSnapshot):
        try:
            # The first snapshot of a cluster covers no entry, and is empty.
            known = decode_snapshot_records(content.data) if content.data else None
            fields["data"] = named(known)
        except msgspec.MsgspecError as error:
            reason = "the contents of the snapshot cannot be decoded, a newer tidelog may have"
            return bad(path, f"{reason} written it: {error}", position=0)
    return {"file": path, "type": kind.value, "format_version": FORMAT_VERSION, **fields}


def _index_in(checkpoint: LogCheckpoint) -> Row | None:
    """Return the summary of a checkpoint's index; `None` if it is empty or invalid."""
    base_offset = checkpoint.recovery_base_offset
    index = OffsetIndex.from_bytes(checkpoint.index, base_offset=base_offset, interval_bytes=1)
    return None if index is None else {"base_offset": base_offset, "count": len(index)}
