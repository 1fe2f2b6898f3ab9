"""Offset map of compaction: the newest offset of each key, in bounded memory (Kafka: OffsetMap).

Pure: no clock, no I/O. The map identifies keys by 128 bits of BLAKE2b. Two keys with one digest
would lose a record; the odds of such a pair among 2^40 keys are one to some 10^14.
"""

from array import array
from hashlib import blake2b
from typing import Final, final

_DIGEST_BYTES: Final = 16
SLOT_BYTES: Final = _DIGEST_BYTES + 8
"""Bytes of a slot, filled or free."""
_FILLED_MAX: Final = 0.75
"""Maximum load factor; a higher one makes every search long."""
_MEMORY_BYTES_MIN: Final = 64 * SLOT_BYTES


@final
class OffsetMap:
    """Keys with the highest offset of each: a hash table of fixed size with linear probing.

    `array` and `bytearray` hold numbers instead of objects: a `dict` would take five times as much.
    """

    def __init__(self, *, memory_bytes: int) -> None:
        """Allocate `memory_bytes` at once, and never more."""
        self._slot_count = max(memory_bytes, _MEMORY_BYTES_MIN) // SLOT_BYTES
        self._digests = bytearray(self._slot_count * _DIGEST_BYTES)
        self._ends = array("Q", [0]) * self._slot_count
        """By slot: the offset after the newest record of its key, 0 for a free slot."""
        self._count = 0

    def __len__(self) -> int:
        """Return the number of keys."""
        return self._count

    @property
    def capacity(self) -> int:
        """Maximum number of keys."""
        return int(self._slot_count * _FILLED_MAX)

    @property
    def room(self) -> int:
        """Number of further keys that fit."""
        return self.capacity - self._count

    def put(self, key: bytes, offset: int) -> None:
        """Add a record; the records of a key come in the order of offsets."""
        digest = _digest(key)
        slot = self._find(digest)
        if not self._ends[slot]:
            assert self._count < self.capacity, "the caller must check the room first"
            self._digests[slot * _DIGEST_BYTES : (slot + 1) * _DIGEST_BYTES] = digest
            self._count += 1
        self._ends[slot] = offset + 1

    def newest(self, key: bytes) -> int | None:
        """Return the highest offset of a key, `None` if it was never put."""
        end = self._ends[self._find(_digest(key))]
        return end - 1 if end else None

    def _find(self, digest: bytes) -> int:
        """Return the slot of a key, or the free slot for it."""
        ends, is_there = self._ends, self._digests.startswith
        slot = int.from_bytes(digest[:8], "little") % self._slot_count
        while ends[slot] and not is_there(digest, slot * _DIGEST_BYTES):
            slot += 1
            if slot == self._slot_count:
                slot = 0
        return slot


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
