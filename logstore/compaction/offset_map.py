"""Where the newest record of each key is, in memory that is bounded whatever keys there are.

Pure: no clock, no I/O. Keys are known by 128 bits of BLAKE2b: two keys with one digest would cost
a record, and to come upon two among 2^40 takes odds of one to some 10^14.
"""

from array import array
from hashlib import blake2b
from typing import Final, final

_DIGEST_BYTES: Final = 16
SLOT_BYTES: Final = _DIGEST_BYTES + 8
"""What a place takes, with a key or without."""
_FILLED_MAX: Final = 0.75
"""Of all places; more make every search long."""
_MEMORY_BYTES_MIN: Final = 64 * SLOT_BYTES


@final
class OffsetMap:
    """Keys and the highest offset of each: a table that never grows, searched place by place.

    `array` and `bytearray` hold numbers and not objects: a `dict` of the same takes five times as
    much.
    """

    def __init__(self, *, memory_bytes: int) -> None:
        """Take so much memory at once, and never more."""
        self._slot_count = max(memory_bytes, _MEMORY_BYTES_MIN) // SLOT_BYTES
        self._digests = bytearray(self._slot_count * _DIGEST_BYTES)
        self._ends = array("Q", [0]) * self._slot_count
        """By place: the offset after the newest record of the key there, 0 if there is none."""
        self._count = 0

    def __len__(self) -> int:
        """Return the number of keys."""
        return self._count

    @property
    def capacity(self) -> int:
        """How many keys it takes."""
        return int(self._slot_count * _FILLED_MAX)

    @property
    def room(self) -> int:
        """How many more keys it takes."""
        return self.capacity - self._count

    def put(self, key: bytes, offset: int) -> None:
        """Take note of a record; those of a key come in the order of offsets."""
        digest = _digest(key)
        slot = self._find(digest)
        if not self._ends[slot]:
            assert self._count < self.capacity, "whoever puts asks for room before"
            self._digests[slot * _DIGEST_BYTES : (slot + 1) * _DIGEST_BYTES] = digest
            self._count += 1
        self._ends[slot] = offset + 1

    def newest(self, key: bytes) -> int | None:
        """Return the highest offset of a key, `None` if it was never put."""
        end = self._ends[self._find(_digest(key))]
        return end - 1 if end else None

    def _find(self, digest: bytes) -> int:
        """Return the place of a key, or the one where it belongs."""
        ends, is_there = self._ends, self._digests.startswith
        slot = int.from_bytes(digest[:8], "little") % self._slot_count
        while ends[slot] and not is_there(digest, slot * _DIGEST_BYTES):
            slot += 1
            if slot == self._slot_count:
                slot = 0
        return slot


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
