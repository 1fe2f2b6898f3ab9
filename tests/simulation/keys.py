"""Keys of records in lives of topics that are compacted.

The key of a record follows from its value, so that whoever has read or sent one knows its key.
"""

from collections.abc import Iterable, Mapping
from typing import final
from zlib import crc32

from tests.simulation.checkers.book import FinalLog, Place

_KEYS = 6
_TRESPASSER = b"t"
"""What the values of those begin with who give no keys."""


def key_of(value: bytes) -> bytes | None:
    """Return the key under which a value is sent, `None` for one record of seven."""
    number = crc32(value) % (_KEYS + 1)
    return b"key %d" % number if number < _KEYS and not value.startswith(_TRESPASSER) else None


@final
class Superseded:
    """Which records may be gone, for the last reader has found a later one of the same key.

    What is damaged may have been one.
    """

    def __init__(self, partitions: Iterable[int] = ()) -> None:
        """Know which partitions are compacted, by their numbers in the life."""
        self.partitions = set(partitions)
        self._newest: dict[tuple[int, bytes], int] = {}
        self._damage_ends: dict[int, int] = {}
        """By partition: the end of the last damage."""

    def learn(self, logs: Mapping[int, FinalLog]) -> None:
        """Take note of what was found at the end."""
        for partition in sorted(self.partitions):
            ends = [damage.next_offset for damage in logs[partition].damage]
            self._damage_ends[partition] = max(ends, default=0)
            for offset, value in sorted(logs[partition].values.items()):
                key = key_of(value)
                if key is not None:
                    self._newest[partition, key] = offset

    def covers(self, place: Place, value: bytes) -> bool:
        """Return whether what was there may be gone."""
        key = key_of(value)
        if key is None:
            return False
        newest = max(self._newest.get((place[0], key), -1), self._damage_ends.get(place[0], 0) - 1)
        return newest > place[1]
