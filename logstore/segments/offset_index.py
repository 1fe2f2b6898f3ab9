"""The sparse index of one segment: offset to position, and time to position.

Pure: no clock, no I/O. It can always be rebuilt from the segment; `docs/formats/index.md` has the
bytes. Each batch that begins at least `interval_bytes` after the last indexed batch has an entry.
The third column makes it a time index as well: the largest timestamp of all batches *before* the
entry. That value never falls, so a binary search works although timestamps are not in order.

    prefix, 24 bytes                      then, count entries in three columns
     0   4 magic "TLIX"                    4 bytes each: offset minus base offset
     4   2 format version                  4 bytes each: position in the segment
     6   2 reserved, 0                     8 bytes each: largest timestamp before
     8   8 base offset
    16   4 count of entries
    20   4 CRC-32C of all other bytes

All integers are little-endian.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import closing
from typing import final

from crc32c import crc32c

from tidelog.logstore.config import LogConfig, MiB
from tidelog.logstore.disk.disk import Disk, File
from tidelog.logstore.segments.batch_scanner import walk_headers
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE

_PREFIX = struct.Struct("<4sHHQI")
_CRC = struct.Struct("<I")
_PREFIX_SIZE = _PREFIX.size + _CRC.size
_ENTRY_SIZE = 16
_MAGIC = b"TLIX"
FORMAT_VERSION = 1
assert sys.byteorder == "little", "columns are stored as they are in memory"


@final
class OffsetIndex:
    """Entries (relative offset, position, largest timestamp before), in order.

    Invariant: the first two columns grow strictly, the third never falls.
    """

    __slots__ = ("_base_offset", "_interval_bytes", "_max_timestamps", "_offsets", "_positions")

    def __init__(self, *, base_offset: int, interval_bytes: int) -> None:
        """Index the segment whose first offset is `base_offset`."""
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._offsets = array("I")
        self._positions = array("I")
        self._max_timestamps = array("q")

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._positions)

    def add(self, offset: int, position: int, *, max_timestamp_before: int) -> None:
        """Add a batch, if it is far enough from the last indexed batch."""
        positions = self._positions
        if positions and position - positions[-1] < self._interval_bytes:
            return
        self._offsets.append(offset - self._base_offset)
        positions.append(position)
        self._max_timestamps.append(max_timestamp_before)

    def floor(self, offset: int) -> tuple[int, int] | None:
        """Return (offset, position) of the last entry at or below `offset`."""
        found = bisect_right(self._offsets, max(offset - self._base_offset, -1)) - 1
        return self._entry(found) if found >= 0 else None

    def floor_position(self, position: int) -> int | None:
        """Return the last indexed position at or below `position`."""
        found = bisect_right(self._positions, position) - 1
        return self._positions[found] if found >= 0 else None

    def ceiling_position(self, position: int) -> int | None:
        """Return the first indexed position at or above `position`."""
        found = bisect_left(self._positions, position)
        return self._positions[found] if found < len(self._positions) else None

    def before_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, position) of the last entry with only older batches before it."""
        found = bisect_left(self._max_timestamps, timestamp_ms) - 1
        return self._entry(found) if found >= 0 else None

    def truncate(self, position: int) -> None:
        """Remove entries at or above `position`."""
        keep = bisect_left(self._positions, position)
        del self._offsets[keep:], self._positions[keep:], self._max_timestamps[keep:]

    def entries(self) -> Iterator[tuple[int, int, int]]:
        """Yield (offset, position, largest timestamp before) of all entries, in order."""
        base_offset = self._base_offset
        for relative, position, before_ms in zip(
            self._offsets, self._positions, self._max_timestamps, strict=True
        ):
            yield base_offset + relative, position, before_ms

    def to_bytes(self) -> bytes:
        """Return the index as it is stored."""
        prefix = _PREFIX.pack(_MAGIC, FORMAT_VERSION, 0, self._base_offset, len(self._positions))
        body = self._offsets.tobytes() + self._positions.tobytes() + self._max_timestamps.tobytes()
        return prefix + _CRC.pack(crc32c(body, crc32c(prefix))) + body

    @classmethod
    def from_bytes(
        cls, data: bytes, *, base_offset: int, interval_bytes: int
    ) -> "OffsetIndex | None":
        """Return a stored index, `None` when it is damaged or of another segment or version."""
        if len(data) < _PREFIX_SIZE:
            return None
        magic, version, _, stored_base, count = _PREFIX.unpack_from(data)
        (crc,) = _CRC.unpack_from(data, _PREFIX.size)
        body = memoryview(data)[_PREFIX_SIZE:]
        if (magic, version, stored_base) != (_MAGIC, FORMAT_VERSION, base_offset):
            return None
        if len(body) != count * _ENTRY_SIZE:
            return None
        if crc32c(body, crc32c(data[: _PREFIX.size])) != crc:
            return None
        index = cls(base_offset=base_offset, interval_bytes=interval_bytes)
        index._offsets.frombytes(body[: count * 4])
        index._positions.frombytes(body[count * 4 : count * 8])
        index._max_timestamps.frombytes(body[count * 8 :])
        return index

    def _entry(self, number: int) -> tuple[int, int]:
        return self._base_offset + self._offsets[number], self._positions[number]


def version_of_index(data: bytes) -> int | None:
    """Return the format version of a stored index, `None` if it has none.

    For inspection: readers rebuild an index of another version anyway.
    """
    if len(data) < _PREFIX_SIZE or data[:4] != _MAGIC:
        return None
    _, version, *_ = _PREFIX.unpack_from(data)
    return int(version)


def index_of_batches(
    file: File, *, base_offset: int, end_position: int, config: LogConfig
) -> OffsetIndex:
    """Return the index of the batches below `end_position`; reads headers, and may block.

    Raises:
        OSError: The disk failed.
    """
    index = OffsetIndex(base_offset=base_offset, interval_bytes=config.index_interval_bytes)
    max_timestamp_ms = 0
    for position, header in walk_headers(
        file,
        SEGMENT_HEADER_SIZE,
        start_offset=base_offset,
        end=end_position,
        chunk_bytes=MiB,
    ):
        index.add(header.base_offset, position, max_timestamp_before=max_timestamp_ms)
        max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp_ms)
    return index


def write_index(disk: Disk, path: str, index: OffsetIndex) -> None:
    """Replace the index at `path`, durably; blocks. No broker may use the directory.

    Raises:
        OSError: The disk is full or failed; the old index or the new one is there.
    """
    temporary = f"{path}.tmp"
    disk.remove(temporary)
    try:
        with closing(disk.open(temporary, create=True)) as file:
            file.write_at(0, [index.to_bytes()])
            file.sync()
        disk.rename(temporary, path)
    except OSError:
        disk.remove(temporary)
        raise
    disk.sync_directory(path.rpartition("/")[0])
