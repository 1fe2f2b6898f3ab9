"""Checkpoints and other small files with atomic replacement.

A write is a temporary file, sync, rename and sync of the directory, with a version and a CRC-32C.
A reader gets the old content or the new content, or an error that the file is damaged.
`docs/formats/checkpoint.md` has a worked example.

     0   4 magic "TLCP"
     4   2 format version
     6   2 reserved, 0
     8   4 length of the content
    12   4 CRC-32C of all other bytes
    16     content, MessagePack

All integers of the prefix are little-endian. Every later version keeps the prefix, so that an
older tidelog can tell a newer file from a damaged file.
"""

import struct
from typing import TypeVar

import msgspec
from crc32c import crc32c

from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.disk.disk import Disk, ReadableDisk
from tidelog.logstore.producer_state import ProducerState
from tidelog.wire.errors import DataDirectoryError

Content = TypeVar("Content")

_PREFIX = struct.Struct("<4sHHI")
_CRC = struct.Struct("<I")
_PREFIX_SIZE = _PREFIX.size + _CRC.size
_MAGIC = b"TLCP"
FORMAT_VERSION = 1
CHECKPOINT_NAME = "checkpoint"


class DamagedFileError(Exception):
    """A small file exists, but its content is damaged."""


class LogCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """State of a log for a start that does not read all of it.

    It describes the log up to `recovery_offset`; recovery scans the log from there on.
    """

    log_start_offset: int
    """First readable offset."""
    recovery_offset: int
    """All records below it are on disk (exclusive end)."""
    recovery_base_offset: int
    """Base offset of the active segment at `recovery_offset`; earlier ones are fully on disk."""
    recovery_position: int
    """Position of `recovery_offset` in that segment."""
    max_timestamp_ms: int
    """Largest timestamp in that segment below `recovery_position`."""
    first_append_ms: int | None
    """Time of the first append to that segment."""
    index: bytes
    """Index of that segment up to `recovery_position`."""
    leader_epochs: list[tuple[int, int]]
    producers: list[ProducerState]
    damage: list[DamagedRange]
    high_watermark: int = 0
    """Exclusive end of the records known to be committed; more may be."""
    has_deletion_markers: bool = False
    """Whether every deletion of segments below `recovery_base_offset` is in a checkpoint or in a
    deletion marker; earlier versions deleted segments without a mark."""
    clean_offset: int = 0
    """Compaction checkpoint: no record below it is superseded by a later record below it."""


def write_small_file(disk: Disk, path: str, content: object) -> None:
    """Replace the file at `path`, durably; blocks.

    Raises:
        OSError: The disk is full or failed; a reader gets the old content or the new content.
    """
    body = msgspec.msgpack.encode(content)
    prefix = _PREFIX.pack(_MAGIC, FORMAT_VERSION, 0, len(body))
    crc = _CRC.pack(crc32c(body, crc32c(prefix)))
    temporary = f"{path}.tmp"
    disk.remove(temporary)
    try:
        file = disk.open(temporary, create=True)
        try:
            file.write_at(0, [prefix, crc, body])
            file.sync()
        finally:
            file.close()
        disk.rename(temporary, path)
    except OSError:
        disk.remove(temporary)  # Frees its room on a full disk.
        raise
    disk.sync_directory(path.rpartition("/")[0])


def read_small_file(disk: ReadableDisk, path: str, content_type: type[Content]) -> Content | None:
    """Return the content of the file at `path`, `None` when there is no such file.

    Raises:
        OSError: The disk failed.
        DamagedFileError: The file is damaged.
        DataDirectoryError: The file was written by a newer version.
    """
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    return parse_small_file(data, f"{disk.root}/{path}", content_type)


def checked_crc(disk: ReadableDisk, path: str) -> int | None:
    """Return the CRC-32C of the file at `path`, `None` if the file is damaged.

    Raises:
        OSError: The disk failed, or there is no such file.
    """
    file = disk.open(path)
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    if len(data) < _PREFIX_SIZE:
        return None
    (crc,) = _CRC.unpack_from(data, _PREFIX.size)
    body = memoryview(data)[_PREFIX_SIZE:]
    return crc if crc32c(body, crc32c(data[: _PREFIX.size])) == crc else None


def parse_small_file(data: bytes, name: str, content_type: type[Content]) -> Content:
    """Return the content of a file with these bytes; `name` is for messages.

    Raises:
        DamagedFileError: The bytes are damaged.
        DataDirectoryError: A newer version wrote the file.
    """
    if len(data) < _PREFIX_SIZE:
        raise DamagedFileError(f"{name} is only {len(data)} bytes long")
    magic, version, _, length = _PREFIX.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _PREFIX.size)
    body = memoryview(data)[_PREFIX_SIZE:]
    if magic != _MAGIC:
        raise DamagedFileError(f"{name} is not a tidelog file")
    if len(body) != length or crc32c(body, crc32c(data[: _PREFIX.size])) != crc:
        raise DamagedFileError(f"{name} does not match its length and CRC-32C")
    if version != FORMAT_VERSION:
        raise DataDirectoryError(
            f"{name} has format version {version}, this tidelog reads {FORMAT_VERSION};"
            " use the version that wrote it, or a newer one"
        )
    try:
        return msgspec.msgpack.decode(body, type=content_type)
    except msgspec.MsgspecError as error:
        raise DamagedFileError(f"{name} cannot be decoded: {error}") from error
