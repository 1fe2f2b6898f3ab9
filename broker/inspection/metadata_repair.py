"""Repair of the metadata of a stopped broker, whose log has an entry that cannot be applied.

A broker applies every entry at its start, and refuses to start with one that it cannot apply. Two
ways lead out: other nodes of the cluster have the metadata, or the entries from that one on go.
"""

from dataclasses import dataclass
from typing import final

from tidelog.coordinator.bootstrap.open_node import (
    METADATA_DIRECTORY,
    RESTORE_HELP,
    set_metadata_aside,
)
from tidelog.coordinator.controller.log_entries import (
    STATE_ERRORS,
    decode_entry,
    decode_snapshot,
)
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.coordinator.raft.log import RaftLog
from tidelog.coordinator.raft.messages import EntryKind
from tidelog.coordinator.raft_node.storage import (
    DamagedStorageError,
    Stored,
    open_raft_storage,
)
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.wire.errors import DataDirectoryError

__all__ = ["MetadataVerdict", "cut_metadata", "examine_metadata", "set_metadata_aside"]


@final
@dataclass(frozen=True, slots=True)
class MetadataVerdict:
    """What a start would meet in the metadata."""

    snapshot_index: int
    """Last entry that the snapshot covers."""
    last_index: int
    """Last entry of the log."""
    bad_index: int | None
    """First entry that cannot be applied; that of the snapshot if it is the snapshot itself;
    `None` if all can."""
    reason: str
    """Why; empty if all can be applied."""
    other_voters: tuple[int, ...]
    """Node ids of the other voters, ascending."""

    @property
    def is_snapshot_bad(self) -> bool:
        """Whether no entry at all can be applied, because the snapshot cannot."""
        return self.bad_index == self.snapshot_index


def examine_metadata(disk: Disk, *, now_ms: int) -> MetadataVerdict:
    """Apply all of the stored metadata in memory; nothing changes that matters to a start.

    Raises:
        DataDirectoryError: The files are damaged, or belong to a newer version.
        OSError: The disk failed.
    """
    files = FileCache(disk)
    try:
        storage, stored, _ = open_raft_storage(METADATA_DIRECTORY, files, now_ms=now_ms)
    except DamagedStorageError as error:
        raise DataDirectoryError(f"{error}; {RESTORE_HELP}") from error
    try:
        return _examine(stored)
    finally:
        storage.close()
        files.clear()


def cut_metadata(disk: Disk, verdict: MetadataVerdict, *, now_ms: int) -> int:
    """Remove the first entry that cannot be applied, and all behind it; return their number.

    Raises:
        DataDirectoryError: No entry is bad, or other voters may have acknowledged these entries, or
            the snapshot is bad.
        OSError: The disk is full or failed.
    """
    if verdict.bad_index is None:
        raise DataDirectoryError(f"{disk.root}/{METADATA_DIRECTORY} needs no repair")
    if verdict.other_voters:
        raise DataDirectoryError(
            f"{disk.root}/{METADATA_DIRECTORY} belongs to a voter, and other voters may hold the"
            " same entries; use --set-aside, and start the broker with --peers"
        )
    if verdict.is_snapshot_bad:
        raise DataDirectoryError(
            f"the snapshot in {disk.root}/{METADATA_DIRECTORY} cannot be applied, so that no entry"
            " can be kept; restore the whole data directory from a backup"
        )
    files = FileCache(disk)
    storage, _, _ = open_raft_storage(METADATA_DIRECTORY, files, now_ms=now_ms)
    try:
        storage.cut(verdict.bad_index)
    finally:
        storage.close()
        files.clear()
    return verdict.last_index - verdict.bad_index + 1


def _examine(stored: Stored) -> MetadataVerdict:
    meta = stored.snapshot.meta
    bad_index, reason = _first_bad(stored)
    membership = RaftLog(meta, stored.entries).membership
    others = {voter.node_id for voter in membership.voters} - {stored.vote.identity.node_id}
    return MetadataVerdict(
        meta.index,
        stored.entries[-1].index if stored.entries else meta.index,
        bad_index,
        reason,
        tuple(sorted(others)),
    )


def _first_bad(stored: Stored) -> tuple[int | None, str]:
    """Return the first entry that cannot be applied after the snapshot, and why."""
    index, snapshot = stored.snapshot.meta.index, stored.snapshot.data
    try:
        cluster, groups = (
            decode_snapshot(snapshot) if snapshot else (MetadataStateMachine(), ConsumerGroups())
        )
        for entry in stored.entries:
            index = entry.index
            if entry.kind is EntryKind.COMMAND:
                records = decode_entry(entry.payload)
                for record in records.groups:
                    groups.apply(record)
                for each in records.cluster:
                    cluster.apply(each)
    except STATE_ERRORS as error:
        return index, f"{type(error).__name__}: {error}"
    return None, ""
