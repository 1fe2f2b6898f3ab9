"""The sparse index of one segment: offset to position, and time to position.

Pure: no clock, no I/O. Always rebuildable from the segment; `docs/formats/index.md` has the
bytes. One entry stands for each batch that begins at least `interval_bytes` after the last
indexed one. The third column makes it a time index as well: it is the largest timestamp of all
batches *before* the entry, which never falls, so it can be searched although the timestamps of
records may jump back and forth.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import final

from crc32c import crc32c

_PREFIX = struct.Struct("<4sHHQII")
_MAGIC = b"TLIX"
_VERSION = 1


@final
class SegmentIndex:
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
        """Take note of a batch, if it is far enough from the last one noted."""
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
        return self._entry(max(found, 0)) if self._positions else None

    def truncate(self, position: int) -> None:
        """Forget entries at or above `position`."""
        keep = bisect_left(self._positions, position)
        del self._offsets[keep:], self._positions[keep:], self._max_timestamps[keep:]

    def to_bytes(self) -> bytes:
        """Return the index as it is stored."""
        body = self._offsets.tobytes() + self._positions.tobytes() + self._max_timestamps.tobytes()
        prefix = _PREFIX.pack(
            _MAGIC, _VERSION, 0, self._base_offset, len(self._positions), crc32c(body)
        )
        return prefix + body

    @classmethod
    def from_bytes(
        cls, data: bytes, *, base_offset: int, interval_bytes: int
    ) -> "SegmentIndex | None":
        """Return a stored index, `None` when it is damaged or of another segment."""
        if len(data) < _PREFIX.size:
            return None
        magic, version, _, stored_base, count, crc = _PREFIX.unpack_from(data)
        body = data[_PREFIX.size :]
        if (magic, version, stored_base) != (_MAGIC, _VERSION, base_offset):
            return None
        if len(body) != count * 16 or crc32c(body) != crc:
            return None
        index = cls(base_offset=base_offset, interval_bytes=interval_bytes)
        index._offsets.frombytes(body[: count * 4])
        index._positions.frombytes(body[count * 4 : count * 8])
        index._max_timestamps.frombytes(body[count * 8 :])
        return index

    def _entry(self, number: int) -> tuple[int, int]:
        return self._base_offset + self._offsets[number], self._positions[number]
