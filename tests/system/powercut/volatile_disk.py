"""Disk with a volatile write cache, and its possible states after a power cut.

Pure. Flushed sectors stay. Of later writes, each sector may have reached the medium or not, in any
order: that is all a disk guarantees, and all that a file system relies on.
"""

from enum import Enum
from random import Random
from typing import final

SECTOR_BYTES = 512
"""A sector is written completely or not at all."""
BLOCK_BYTES = 4096
"""The unit in which a thin disk allocates from its pool."""


class Survival(Enum):
    """Outcome of the unflushed sectors."""

    NONE = "none"
    ALL = "all"
    PREFIX = "those before some moment"
    WRITES = "some writes, whole"
    SECTORS = "some sectors"


@final
class VolatileDisk:
    """Sectors, some of which are only in the cache."""

    def __init__(self, size_bytes: int = 0, *, content: bytearray | None = None) -> None:
        """Start with zeros, or with `content`, which is on the medium."""
        self.refusal: int | None = None
        """Error number for writes to unwritten blocks of a thin disk with an exhausted pool. `None`
        while the pool has space."""
        self._durable = bytearray(size_bytes) if content is None else content
        self._latest = bytearray(self._durable)
        self._unflushed: list[tuple[int, bytes]] = []
        has_content = content is not None
        self._is_allocated = bytearray([has_content]) * (len(self._latest) // BLOCK_BYTES)

    @property
    def size_bytes(self) -> int:
        """The length of the disk."""
        return len(self._latest)

    @property
    def unflushed_bytes(self) -> int:
        """Number of bytes that the next power cut may lose."""
        return sum(len(data) for _, data in self._unflushed)

    def read(self, position: int, length: int) -> bytes:
        """Return the bytes that were written last."""
        return bytes(self._latest[position : position + length])

    def write(self, position: int, data: bytes) -> None:
        """Write into the cache.

        Raises:
            OSError: A block of it was never written, and the pool is exhausted; the disk is
                unchanged.
        """
        assert position + len(data) <= len(self._latest), "a write beyond the end"
        blocks = slice(position // BLOCK_BYTES, -(-(position + len(data)) // BLOCK_BYTES))
        if self.refusal is not None and not all(self._is_allocated[blocks]):
            raise OSError(self.refusal, "no room for a new block")
        self._is_allocated[blocks] = b"\1" * (blocks.stop - blocks.start)
        self._latest[position : position + len(data)] = data
        self._unflushed.append((position, data))

    def flush(self) -> None:
        """Write the cache to the medium."""
        for position, data in self._unflushed:
            self._durable[position : position + len(data)] = data
        self._unflushed.clear()

    def after_power_cut(self, survival: Survival, random: Random) -> bytearray:
        """Return the state of the medium after a power cut at this moment; nothing changes."""
        medium = bytearray(self._durable)
        for position, data in _survivors(self._unflushed, survival, random):
            medium[position : position + len(data)] = data
        return medium


def _survivors(
    writes: list[tuple[int, bytes]], survival: Survival, random: Random
) -> list[tuple[int, bytes]]:
    """Return the writes that reached the medium, in their order."""
    sectors = [
        (position + start, data[start : start + SECTOR_BYTES])
        for position, data in writes
        for start in range(0, len(data), SECTOR_BYTES)
    ]
    match survival:
        case Survival.NONE:
            return []
        case Survival.ALL:
            return writes
        case Survival.PREFIX:
            return sectors[: random.randint(0, len(sectors))]
        case Survival.WRITES:
            return [write for write in writes if random.random() < 0.5]
        case Survival.SECTORS:
            share = random.choice([0.1, 0.5, 0.9])
            return [sector for sector in sectors if random.random() < share]
