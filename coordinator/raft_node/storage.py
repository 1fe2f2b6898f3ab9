"""The durable state of a voter: its vote, its log, its snapshot.

Blocking; the caller runs it in a thread. All of it is in one directory:

        vote        its identity, its term, and the candidate with its vote
    snapshot    the latest one, with the membership at its end
    *.log, ...  the entries behind the snapshot, as a log of `logstore`

An entry is a batch of its own, so that the log can be truncated behind every entry. Its index is
its offset plus one; its term is the leader epoch of its batch. The value of its record is the kind
of the entry, in one byte, and its payload. Logs written before there were entries hold records of
the catalog alone: their first byte, of a MessagePack array, is no kind.
"""

from collections.abc import Iterator, Sequence
from typing import Final, final

import msgspec

from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import Entry, EntryKind, SnapshotMeta
from tidelog.coordinator.raft.ready import HardState
from tidelog.logstore.checkpoint import DamagedFileError, read_small_file, write_small_file
from tidelog.logstore.config import LogConfig, MiB
from tidelog.logstore.disk.disk import NO_DESCRIPTOR_ERRNOS, Disk
from tidelog.logstore.log import PartitionLog
from tidelog.logstore.recovery.log_reset import create_empty_log, truncate_fully
from tidelog.logstore.recovery.recovery import RecoveryReport, open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment_format import SegmentHeader
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import HEADER_SIZE, Columns, encode_batch, parse_header
from tidelog.wire.errors import (
    CorruptRecordError,
    DataDirectoryError,
    LogOfflineError,
    WireFormatError,
)

OWNER: Final = SegmentHeader(b"tidelog-metadata", 0, 0)
CONFIG: Final = LogConfig(
    retention_ms=None, segment_bytes=16 * MiB, max_message_bytes=9 * MiB, checkpoint_bytes=4 * MiB
)
VOTE_NAME = "vote"
SNAPSHOT_NAME = "snapshot"
_UNCOMPRESSED_MAX = 64 * MiB
_ARRAY_OF_ONE = b"\x91"
_KINDS: Final = {int(kind): kind for kind in EntryKind}


class Vote(msgspec.Struct, frozen=True, array_like=True):
    """A voter's promises; they are never withdrawn."""

    identity: Identity
    """Identity of the voter."""
    cluster_id: str
    hard_state: HardState


class StoredSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state of the state machine, in place of the entries before it."""

    meta: SnapshotMeta
    data: bytes


class Stored(msgspec.Struct, frozen=True):
    """The state that a start found."""

    vote: Vote
    snapshot: StoredSnapshot
    entries: list[Entry]
    """All entries behind the snapshot."""


class DamagedStorageError(Exception):
    """The voter has lost promises; the text says where."""


@final
class RaftStorage:
    """The durable part of one voter. One call at a time, in any thread.

    Invariant: the log has all entries from the one behind the snapshot to `last_index`, and some
    of those that the snapshot covers.
    """

    def __init__(self, directory: str, files: FileCache, log: PartitionLog) -> None:
        """Start from the state that `open_raft_storage` found in `directory`."""
        self._directory = directory
        self._files = files
        self._log = log
        self._is_log_closed = False
        """Whether the log must be recreated, and the disk had no room for that yet."""

    @property
    def last_index(self) -> int:
        """The last appended entry, durable or not."""
        return self._log.log_end_offset

    @property
    def data_directory(self) -> str:
        """The path of the data directory."""
        return self._files.disk.root

    @property
    def size_bytes(self) -> int:
        """Bytes of the log."""
        return self._log.size_bytes

    @property
    def free_bytes(self) -> int:
        """Free bytes on the disk."""
        return self._files.disk.free_bytes()

    def save_vote(self, vote: Vote) -> None:
        """Write the vote, durably.

        Raises:
            OSError: The disk is full or failed; the vote is the old one or the new one.
        """
        write_small_file(self._files.disk, f"{self._directory}/{VOTE_NAME}", vote)

    def append(self, entries: Sequence[Entry], *, now_ms: int) -> None:
        """Append entries, in place of all entries behind the one before them; durable on return.

        Raises:
            DiskFullError: There is no room; the log ends somewhere before the last of the entries,
                and the call may be repeated.
            LogOfflineError: The disk failed.
        """
        log = self._log
        if entries and entries[0].index <= log.log_end_offset:
            try:
                log.truncate(entries[0].index - 1)
            except CorruptRecordError as error:
                log.fail(f"truncating failed: {error}")
                raise LogOfflineError(f"{self._directory} is damaged: {error}") from error
        for entry in entries:
            assert entry.index == log.log_end_offset + 1, "entries follow each other"
            value = bytes((entry.kind,)) + entry.payload
            batch = memoryview(encode_batch(Columns(1, values=[value]), first_timestamp_ms=now_ms))
            header = parse_header(batch)
            assert header is not None
            log.append(batch, header, leader_epoch=entry.term, now_ms=now_ms)
        self._flush()

    def install(self, snapshot: StoredSnapshot, *, now_ms: int) -> None:
        """Replace all entries by a snapshot from the leader, durably.

        Raises:
            OSError: The disk is full or failed; if it is full, the call may be repeated.
            DiskFullError: The same.
            LogOfflineError: The disk failed.
        """
        # The snapshot first: without it, a log that ends below it could not be recreated.
        write_small_file(self._files.disk, f"{self._directory}/{SNAPSHOT_NAME}", snapshot)
        index = snapshot.meta.index
        if not self._is_log_closed:
            self._log.truncate(index, may_drop_damage=True)
            self._log.close()
            self._is_log_closed = True
        self._log = create_empty_log(
            self._directory, index, OWNER, files=self._files, config=CONFIG, now_ms=now_ms
        )
        self._is_log_closed = False

    def compact(self, snapshot: StoredSnapshot, *, keep_entries: int, now_ms: int) -> None:
        """Store a snapshot of the applied state, durably, and remove entries that it covers.

        `keep_entries` of them stay, so that a follower that is a little behind needs no snapshot.

        Raises:
            OSError: The disk is full or failed; the old snapshot or the new one is there.
            LogOfflineError: The disk failed.
        """
        index = snapshot.meta.index
        assert self._log.log_start_offset <= index <= self.last_index
        write_small_file(self._files.disk, f"{self._directory}/{SNAPSHOT_NAME}", snapshot)
        self._log.delete_records(
            max(index - keep_entries, self._log.log_start_offset), high_watermark=index
        )
        self._flush()
        self._log.apply_retention(high_watermark=index, now_ms=now_ms).run()

    def cut(self, index: int) -> None:
        """Remove an entry behind the snapshot, and all behind it; durable on return.

        Only for the only voter, which has promised these entries to no other node.

        Raises:
            LogOfflineError: The disk failed.
            CorruptRecordError: The log is damaged.
        """
        self._log.truncate(index - 1)
        self._flush()

    def close(self) -> None:
        """Close the log, such that the next start need not scan it.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        self._log.require_online()
        self._log.request_checkpoint()
        self._flush()
        self._log.close()

    def _flush(self) -> None:
        flush = self._log.begin_flush()
        if flush is None:
            self._log.require_online()
            return
        try:
            flush.run()
        except OSError as error:
            if error.errno in NO_DESCRIPTOR_ERRNOS:
                raise  # Nothing was changed, so a retry is safe.
            self._log.fail(f"fsync failed: {error}")
            raise LogOfflineError(f"{self._directory} is offline: {error}") from error
        self._log.end_flush(flush)


def found_raft_storage(disk: Disk, directory: str, vote: Vote, *, snapshot: StoredSnapshot) -> None:
    """Write the first state of a voter, durably; blocks.

    The vote comes last: a directory without it has no voter, and is initialized again.

    Raises:
        OSError: The disk is full or failed.
    """
    disk.make_directory(directory)
    write_small_file(disk, f"{directory}/{SNAPSHOT_NAME}", snapshot)
    write_small_file(disk, f"{directory}/{VOTE_NAME}", vote)
    disk.sync_directory(directory.rpartition("/")[0])


def is_founded(disk: Disk, directory: str) -> bool:
    """Return whether this directory has a voter."""
    return disk.exists(f"{directory}/{VOTE_NAME}")


def open_raft_storage(
    directory: str, files: FileCache, *, now_ms: int
) -> tuple[RaftStorage, Stored, RecoveryReport]:
    """Open the stored state of a voter in `directory`; blocks.

    Raises:
        DamagedStorageError: A part is damaged or missing: this voter must not vote any more.
        DataDirectoryError: The directory belongs elsewhere, or to a newer version.
        OSError: The disk failed.
    """
    where = f"{files.disk.root}/{directory}"
    try:
        vote = read_small_file(files.disk, f"{directory}/{VOTE_NAME}", Vote)
        snapshot = read_small_file(files.disk, f"{directory}/{SNAPSHOT_NAME}", StoredSnapshot)
    except DamagedFileError as error:
        raise DamagedStorageError(str(error)) from error
    if vote is None or snapshot is None:
        missing = VOTE_NAME if vote is None else SNAPSHOT_NAME
        raise DamagedStorageError(f"{where}/{missing} is missing")
    log, report = open_log(directory, OWNER, files, config=CONFIG, now_ms=now_ms)
    if report.damage:
        raise DamagedStorageError(f"{where} is damaged at offset {report.damage[0].offset}")
    index = snapshot.meta.index
    if log.log_start_offset > index:
        raise DamagedStorageError(
            f"{where} begins behind its snapshot, which ends with entry {index}"
        )
    if not _follows(log, snapshot.meta):
        # A crash came between a snapshot of the leader's and the new log (canonical/raft #199).
        log = truncate_fully(log, index, OWNER, files=files, now_ms=now_ms)
    try:
        entries = list(_read_entries(log, index))
    except CorruptRecordError as error:
        raise DamagedStorageError(f"{where} is damaged: {error}") from error
    except WireFormatError as error:
        # The checksums are right, so these bytes were written. This is no damage: a node with
        # damaged metadata abandons all of its promises.
        raise DataDirectoryError(
            f"{where} has an entry that this tidelog does not understand: {error}; use the version"
            " that wrote it, or a newer one"
        ) from error
    return RaftStorage(directory, files, log), Stored(vote, snapshot, entries), report


def _follows(log: PartitionLog, meta: SnapshotMeta) -> bool:
    """Return whether the entries behind the snapshot were appended after it.

    They were if the last entry that it covers is in the log, in the snapshot's term. If the log
    begins right behind the snapshot, it was recreated for it.
    """
    if log.log_end_offset < meta.index:
        return False
    is_first = log.log_start_offset == meta.index
    return is_first or log.leader_epochs.epoch_before(meta.index) == meta.term


def _read_entries(log: PartitionLog, offset: int) -> Iterator[Entry]:
    """Return the entries from an offset on.

    Raises:
        CorruptRecordError: An entry is damaged.
        WireFormatError: This version does not write such an entry.
    """
    while (
        part := log.read(offset, max_bytes=1 * MiB, high_watermark=log.log_end_offset)
    ) is not None:
        data = memoryview(part.load().read())
        while len(data) >= HEADER_SIZE:
            header = parse_header(data)
            assert header is not None, "checked by load"
            batch, data = data[: header.size], data[header.size :]
            columns = decode_columns(header, batch, uncompressed_length_max=_UNCOMPRESSED_MAX)
            for number, value in enumerate(columns.values or ()):
                index = header.base_offset + number + 1
                if index > offset:
                    yield stored_entry(index, header.leader_epoch, value or b"")
                    offset = index


def stored_entry(index: int, term: int, value: bytes) -> Entry:
    """Return the entry in the value of a log record.

    Raises:
        WireFormatError: This version does not write such a value.
    """
    if not value:
        raise WireFormatError(f"entry {index} is empty")
    kind = _KINDS.get(value[0])
    if kind is not None:
        return Entry(index, term, kind, value[1:])
    if value[0] & 0xF0 == 0x90:  # noqa: PLR2004  (a short array of MessagePack)
        return Entry(index, term, EntryKind.COMMAND, _ARRAY_OF_ONE + value)
    raise WireFormatError(f"entry {index} is of the unknown kind {value[0]}")
