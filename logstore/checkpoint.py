"""Small files that are replaced as a whole.

Written as temporary file, sync, rename, sync of the directory, with a version and a CRC-32C: a
reader gets the old content or the new one, or learns that the file is damaged.
"""

import struct
from typing import TypeVar

import msgspec
from crc32c import crc32c

from logstore.disk import Disk
from logstore.producer_state import ProducerSnapshot
from wire.errors import DataDirectoryError

Content = TypeVar("Content")

_PREFIX = struct.Struct("<4sHHII")
_MAGIC = b"TLCP"
_VERSION = 1
CHECKPOINT_NAME = "checkpoint"


class DamagedFileError(Exception):
    """A small file exists, but is not what was written."""


class DamagedRange(msgspec.Struct, frozen=True, array_like=True):
    """Records whose stored bytes are known to be damaged."""

    offset: int
    end_offset: int
    """Exclusive end: the first offset behind the damage."""


class LogCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """What a start needs to know of a log without reading it.

    Everything describes the log up to `recovery_offset`; what lies behind is scanned.
    """

    log_start_offset: int
    """First offset still readable."""
    recovery_offset: int
    """All records below it are on disk (exclusive end)."""
    recovery_base_offset: int
    """The segment that was active at `recovery_offset`."""
    recovery_position: int
    """Position of `recovery_offset` in that segment."""
    max_timestamp_ms: int
    """Largest timestamp in that segment below `recovery_position`."""
    first_append_ms: int | None
    """When that segment got its first record."""
    index: bytes
    """Its index, as far as `recovery_position`."""
    leader_epochs: list[tuple[int, int]]
    producers: list[ProducerSnapshot]
    damage: list[DamagedRange]


def write_small_file(disk: Disk, path: str, content: object) -> None:
    """Replace the file at `path`, durably; blocks.

    Raises:
        OSError: The disk failed; the old content is still there.
    """
    body = msgspec.msgpack.encode(content)
    temporary = f"{path}.tmp"
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.write_at(0, [_PREFIX.pack(_MAGIC, _VERSION, 0, len(body), crc32c(body)), body])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.rpartition("/")[0])


def read_small_file(disk: Disk, path: str, content_type: type[Content]) -> Content | None:
    """Return the content of the file at `path`, `None` when there is no such file.

    Raises:
        DamagedFileError: The file is not what was written.
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
    if len(data) < _PREFIX.size:
        raise DamagedFileError(f"{disk.root}/{path} is only {len(data)} bytes long")
    magic, version, _, length, crc = _PREFIX.unpack_from(data)
    body = data[_PREFIX.size : _PREFIX.size + length]
    if magic != _MAGIC:
        raise DamagedFileError(f"{disk.root}/{path} is not a tidelog file")
    if version != _VERSION:
        raise DataDirectoryError(
            f"{disk.root}/{path} has format version {version}, this tidelog reads {_VERSION};"
            " use the version that wrote it, or a newer one"
        )
    if len(body) != length or crc32c(body) != crc:
        raise DamagedFileError(f"{disk.root}/{path} does not match its CRC-32C")
    try:
        return msgspec.msgpack.decode(body, type=content_type)
    except msgspec.MsgspecError as error:
        raise DamagedFileError(f"{disk.root}/{path} cannot be understood: {error}") from error
