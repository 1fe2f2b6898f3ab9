"""Map from 16-byte hashes to numbers, in little memory and without long pauses.

Pure: no clock, no I/O.

A million entries of a `dict` of bytes cost about 140 MB, and growing it copies them all at once.
Here the entries are in three columns of segments with a fixed number of places (open addressing,
linear probing). A segment that is full splits in two, by one more bit of the hash (extendible
hashing), so an insert moves at most one segment's worth of entries, however large the table is.

The keys must be hashes already: their bits choose the segment and the place. They are 128 bits
long, and two different texts with the same hash are not told apart. Among a million million
hashes that happens once in 10^15 years of a million new ones a second; to cause it on purpose, an
attacker must break the hash function.
"""

import struct
from array import array
from typing import Final, final

KEY_SIZE: Final = 16
"""Bytes of a key."""

_PLACES = 512
_MASK = _PLACES - 1
_FULL = 352
"""Entries at which a segment splits: beyond two thirds, probing gets long."""
_EMPTY = -1
_KEY = struct.Struct("<QQ")
_NO_VALUES = array("q", [_EMPTY]) * _PLACES
_NO_WORDS = array("Q", bytes(8 * _PLACES))


@final
class _Segment:
    """Segment of places; all its keys agree in the lowest `depth` bits of their second word."""

    __slots__ = ("count", "depth", "first_words", "second_words", "values")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.count = 0
        self.first_words = _NO_WORDS[:]
        self.second_words = _NO_WORDS[:]
        self.values = _NO_VALUES[:]

    def place_of(self, first: int, second: int) -> int:
        """Return the place of the key, or the empty place where it belongs."""
        first_words, second_words, values = self.first_words, self.second_words, self.values
        place = first & _MASK
        while values[place] != _EMPTY:
            if first_words[place] == first and second_words[place] == second:
                return place
            place = (place + 1) & _MASK
        return place

    def clear_place(self, place: int) -> None:
        """Empty a place, and move back the entries after it that were displaced by it."""
        first_words, second_words, values = self.first_words, self.second_words, self.values
        other = place
        while True:
            other = (other + 1) & _MASK
            if values[other] == _EMPTY:
                break
            home = first_words[other] & _MASK
            if (other - home) & _MASK >= (other - place) & _MASK:
                first_words[place] = first_words[other]
                second_words[place] = second_words[other]
                values[place] = values[other]
                place = other
        values[place] = _EMPTY
        self.count -= 1


@final
class HashTable:
    """Numbers from 0 on, below 2^63, by 16-byte hashes.

    Memory: 45 to 60 bytes an entry, 12 kB for the first one. It shrinks when the last one goes.
    """

    __slots__ = ("_count", "_depth", "_directory")

    def __init__(self) -> None:
        """Start empty, without a segment."""
        self._directory: list[_Segment] = []
        """Segment for each value of the lowest `_depth` bits."""
        self._depth = 0
        self._count = 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return self._count

    @property
    def size_bytes(self) -> int:
        """Memory of the entries in bytes."""
        segment_count = len({id(segment) for segment in self._directory})
        return segment_count * 3 * 8 * _PLACES + 8 * len(self._directory)

    def get(self, key: bytes) -> int | None:
        """Return the number of a key, `None` without one."""
        if not self._directory:
            return None
        first, second = _KEY.unpack(key)
        segment = self._segment_of(second)
        value = segment.values[segment.place_of(first, second)]
        return None if value == _EMPTY else value

    def put(self, key: bytes, value: int) -> None:
        """Set the number of a key, new or not."""
        assert value >= 0, "a negative number marks a place as empty"
        if not self._directory:
            self._directory.append(_Segment(0))
        first, second = _KEY.unpack(key)
        segment = self._segment_of(second)
        place = segment.place_of(first, second)
        if segment.values[place] == _EMPTY:
            while segment.count >= _FULL:
                self._split(segment)
                segment = self._segment_of(second)
                place = segment.place_of(first, second)
            segment.count += 1
            self._count += 1
            segment.first_words[place] = first
            segment.second_words[place] = second
        segment.values[place] = value

    def remove(self, key: bytes) -> None:
        """Remove a key.

        Raises:
            KeyError: The key is not there.
        """
        if not self._directory:
            raise KeyError(key)
        first, second = _KEY.unpack(key)
        segment = self._segment_of(second)
        place = segment.place_of(first, second)
        if segment.values[place] == _EMPTY:
            raise KeyError(key)
        segment.clear_place(place)
        self._count -= 1
        if not self._count:
            self._directory.clear()
            self._depth = 0

    def _segment_of(self, second: int) -> _Segment:
        """Return the segment for keys with this second word."""
        segment: _Segment = self._directory[second & ((1 << self._depth) - 1)]
        return segment

    def _split(self, segment: _Segment) -> None:
        """Split the entries of a full segment into two segments, by one more bit."""
        if segment.depth == self._depth:
            self._directory = [*self._directory, *self._directory]
            self._depth += 1
        bit = 1 << segment.depth
        halves = (_Segment(segment.depth + 1), _Segment(segment.depth + 1))
        suffix = 0
        for first, second, value in zip(
            segment.first_words, segment.second_words, segment.values, strict=True
        ):
            if value == _EMPTY:
                continue
            suffix = second & (bit - 1)
            half = halves[1 if second & bit else 0]
            place = half.place_of(first, second)
            half.first_words[place] = first
            half.second_words[place] = second
            half.values[place] = value
            half.count += 1
        for index in range(suffix, len(self._directory), bit):
            self._directory[index] = halves[1 if index & bit else 0]
