"""Keys of records in runs of topics that are compacted, and records that delete their keys.

The key of a record follows from its value, so each reader and each sender knows the key. The value
also determines whether the record is a tombstone. A tombstone carries its value in a header, so
that it can be identified like all other records.
"""

from collections.abc import Iterable, Mapping
from typing import final
from zlib import crc32

from tests.simulation.checkers.run_history import (
    Acknowledged,
    FinalLog,
    Place,
    ProducerRules,
    SentRecord,
)
from tidelog.wire.batch.record_batch import Headers

_KEYS = 6
_DELETES = 5
"""One of so many records with a key is a tombstone."""
_KEYLESS = (b"t", b"v")
"""Prefixes of the values of clients that set no keys: invalid producers and stray clients."""
_INSTEAD = "instead of a value"


def key_of(value: bytes) -> bytes | None:
    """Return the key of a value, `None` for one record of seven."""
    number = crc32(value) % (_KEYS + 1)
    return b"key %d" % number if number < _KEYS and not value.startswith(_KEYLESS) else None


def is_tombstone(value: bytes) -> bool:
    """Return whether the record of this value is a tombstone, in a topic with tombstones."""
    return key_of(value) is not None and crc32(value, _KEYS) % _DELETES == 0


def as_tombstone(value: bytes) -> Headers:
    """Return the headers of a tombstone with this value."""
    return ((_INSTEAD, value),)


def value_sent(value: bytes | None, headers: Headers) -> bytes | None:
    """Return the value that a record stands for; `None` if it is of no client of these runs."""
    return dict(headers).get(_INSTEAD) if value is None else value


@final
class Superseded:
    """Decides which records may be gone because the last reader found a later one of the same key.

    A damaged record may have been such a later one. Where a tombstone may be gone as well, a
    tombstone that was sent, and may be behind the record, counts like one that is found.
    """

    def __init__(
        self,
        partitions: Iterable[int] = (),
        *,
        has_tombstones: bool = False,
        loses_tombstones: bool = False,
        rules: Mapping[str, ProducerRules] | None = None,
    ) -> None:
        """Set which partitions are compacted.

        Args:
            partitions: By their numbers in the run.
            has_tombstones: Whether some records are tombstones.
            loses_tombstones: Whether compaction may remove a tombstone within a run.
            rules: Rules of each producer, by its name.
        """
        self.partitions = set(partitions)
        self.has_tombstones = has_tombstones
        self._loses_tombstones = has_tombstones and loses_tombstones
        self._rules = rules or {}
        self._newest: dict[tuple[int, bytes], int] = {}
        self._damage_ends: dict[int, int] = {}
        """By partition, the end of the last damage."""
        self._tombstones: dict[tuple[int, bytes], dict[bytes, int | None]] = {}
        """By partition and key: values of the tombstones that were sent, each with its offset if
        that is its only possible place."""

    def sent(self, record: SentRecord) -> None:
        """Record a tombstone that is sent."""
        if self._loses_tombstones and is_tombstone(record.value):
            self._those_like(record)[record.value] = None

    def refused(self, record: SentRecord) -> None:
        """Remove a tombstone that was refused."""
        if self._loses_tombstones:
            self._those_like(record).pop(record.value, None)

    def acknowledged(self, ack: Acknowledged) -> None:
        """Record the offset of a tombstone."""
        record = ack.record
        rules = self._rules.get(record.producer)
        if rules is not None and rules.is_idempotent and record.value in self._those_like(record):
            self._those_like(record)[record.value] = ack.offset

    def _those_like(self, record: SentRecord) -> dict[bytes, int | None]:
        return self._tombstones.setdefault(
            (record.partition, key_of(record.value) or b""), dict[bytes, int | None]()
        )

    def learn(self, logs: Mapping[int, FinalLog]) -> None:
        """Record the final logs."""
        for partition in sorted(self.partitions):
            ends = [damage.next_offset for damage in logs[partition].damage]
            self._damage_ends[partition] = max(ends, default=0)
            for offset, value in sorted(logs[partition].values.items()):
                key = key_of(value)
                if key is not None:
                    self._newest[partition, key] = offset

    def covers(self, place: Place, value: bytes) -> bool:
        """Return whether the record at this place may be gone."""
        key = key_of(value)
        if key is None:
            return False
        newest = max(self._newest.get((place[0], key), -1), self._damage_ends.get(place[0], 0) - 1)
        if newest > place[1]:
            return True
        return self._loses_tombstones and (
            is_tombstone(value)
            or any(
                offset is None or offset > place[1]
                for offset in self._tombstones.get((place[0], key), {}).values()
            )
        )
