"""The data keys of topics, from the metadata in a data directory, and what they open.

Decides; reads through a disk that it never writes. The metadata has the keys wrapped, so they are
of use only with the master keys.
"""

from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Final, final

import msgspec

from tidelog.broker.encryption.keyring import Keyring
from tidelog.broker.encryption.master_keys import MasterKeys
from tidelog.broker.encryption.partition_cipher import PartitionCipher
from tidelog.broker.inspection.file_kinds import FileKind, kind_of, number_in
from tidelog.broker.inspection.segment_walk import BadRange, read_frame, walk
from tidelog.broker.inspection.small_files import read_small
from tidelog.coordinator.bootstrap.open_node import METADATA_DIRECTORY
from tidelog.coordinator.controller.log_entries import (
    StateSnapshot,
    decode_entry,
    decode_snapshot_records,
)
from tidelog.coordinator.metadata.catalog import TopicDeleted
from tidelog.coordinator.metadata.records import Record
from tidelog.coordinator.raft.messages import Entry, EntryKind
from tidelog.coordinator.raft_node.storage import SNAPSHOT_NAME, StoredSnapshot, stored_entry
from tidelog.coordinator.security.records import DataKeySet, DataKeysRemoved
from tidelog.coordinator.security.state import SecurityState
from tidelog.logstore.disk.disk import ReadableDisk
from tidelog.logstore.segments.segment_format import SegmentHeader
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import BatchHeader, has_valid_payload
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import (
    CorruptRecordError,
    DataDirectoryError,
    KeyUnavailableError,
    WireFormatError,
)

_UNCOMPRESSED_BYTES_MAX: Final = 1 << 30


class LockedBatchError(Exception):
    """A sealed batch cannot be opened, and is not damaged; the text says why."""


@final
class StoredKeys:
    """Opens the sealed batches of one data directory."""

    def __init__(self, disk: ReadableDisk, masters: MasterKeys) -> None:
        """Read the wrapped keys in the metadata of the data directory `disk`.

        Raises:
            DataDirectoryError: The directory has no metadata that can be read.
            OSError: The disk failed.
        """
        state = _stored_state(disk)
        self._keyring = Keyring(lambda: state, Random(0))  # noqa: S311 (nothing is sealed here)
        self._keyring.use(masters)
        self._ciphers: dict[tuple[bytes, int], PartitionCipher] = {}

    def open(
        self, owner: SegmentHeader, header: BatchHeader, batch: BytesLike
    ) -> tuple[BatchHeader, BytesLike]:
        """Return the plain form of a batch whose checksums are right.

        Args:
            owner: Header of its segment.
            header: Its header.
            batch: The batch; one that is not sealed is returned.

        Raises:
            LockedBatchError: Its data key was deleted, or cannot be unwrapped.
            WireFormatError: The seal is broken.
        """
        if not header.is_sealed:
            return header, batch
        cipher = self._cipher(owner)
        if cipher.is_gone(batch):
            raise LockedBatchError("its data key was deleted, and its records with it")
        try:
            plain_header, plain = cipher.open(header, batch)
        except KeyUnavailableError as error:
            raise LockedBatchError(str(error)) from error
        except CorruptRecordError as error:
            raise WireFormatError(
                "its seal is broken: the batch was changed, or comes from another place"
            ) from error
        if not has_valid_payload(plain_header, plain):
            raise WireFormatError("the sealed batch does not match the CRC-32C of its producer")
        return plain_header, plain

    def _cipher(self, owner: SegmentHeader) -> PartitionCipher:
        place = (owner.topic_id, owner.partition)
        found = self._ciphers.get(place)
        if found is None:
            found = self._ciphers[place] = PartitionCipher(self._keyring, *place)
        return found


def _stored_state(disk: ReadableDisk) -> SecurityState:
    """Return the data keys in the snapshot of the metadata and in the entries behind it."""
    path = f"{METADATA_DIRECTORY}/{SNAPSHOT_NAME}"
    try:
        names = disk.list_directory(METADATA_DIRECTORY)
        snapshot = read_small(disk, path, FileKind.SNAPSHOT)
    except FileNotFoundError as error:
        raise _no_metadata(disk, "a file is missing") from error
    if not isinstance(snapshot, StoredSnapshot):
        raise _no_metadata(disk, str(snapshot))
    try:
        state = _restored(snapshot)
        for entry in _entries(disk, names):
            if entry.index > snapshot.meta.index and entry.kind is EntryKind.COMMAND:
                for record in decode_entry(entry.payload).cluster:
                    _apply(state, record)
    except (msgspec.MsgspecError, WireFormatError) as error:
        raise _no_metadata(disk, f"a newer tidelog may have written it: {error}") from error
    return state


def _restored(snapshot: StoredSnapshot) -> SecurityState:
    if not snapshot.data:  # The first snapshot of a cluster covers no entry.
        return SecurityState()
    found = decode_snapshot_records(snapshot.data)
    cluster = found.cluster if isinstance(found, StateSnapshot) else found
    return SecurityState(cluster.security)


def _entries(disk: ReadableDisk, names: list[str]) -> Iterator[Entry]:
    """Yield the entries of the metadata log, as far as they are not damaged."""
    for name in sorted(name for name in names if kind_of(name) is FileKind.SEGMENT):
        path = f"{METADATA_DIRECTORY}/{name}"
        with closing(disk.open(path)) as file:
            frame = read_frame(file, f"{disk.root}/{path}")
            for found in walk(file, frame, number_in(path)):
                if isinstance(found, BadRange):
                    continue
                batch = file.read_at(found.position, found.header.size)
                columns = decode_columns(
                    found.header, batch, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX
                )
                for place, value in enumerate(columns.values or ()):
                    index = found.header.base_offset + place + 1
                    yield stored_entry(index, found.header.leader_epoch, value or b"")


def _apply(state: SecurityState, record: Record) -> None:
    match record:
        case DataKeySet() | DataKeysRemoved():
            state.apply(record)
        case TopicDeleted():
            state.topic_deleted(record.topic_id)
        case _:
            pass


def _no_metadata(disk: ReadableDisk, reason: str) -> DataDirectoryError:
    return DataDirectoryError(
        f"the wrapped data keys in {disk.root}/{METADATA_DIRECTORY} cannot be read: {reason}; use"
        " the data directory of a broker of the same cluster, or leave the master keys out"
    )
