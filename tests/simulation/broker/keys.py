"""Keys of records in runs of topics that are compacted, and records that delete their keys.

The key of a record follows from its value, so that whoever has read or sent one knows its key; and
so does whether it deletes its key. One that does is sent without its value, which is in a header
instead: so it can be told from others, like all that is sent.
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
"""One record of so many that have a key deletes it."""
_KEYLESS = (b"t", b"v")
"""What the values of those begin with who give no keys: invalid producers and stray clients."""
_INSTEAD = "instead of a value"


def key_of(value: bytes) -> bytes | None:
    """Return the key under which a value is sent, `None` for one record of seven."""
    number = crc32(value) % (_KEYS + 1)
    return b"key %d" % number if number < _KEYS and not value.startswith(_KEYLESS) else None


def is_tombstone(value: bytes) -> bool:
    """Return whether what stands for this value deletes its key, where anything does."""
    return key_of(value) is not None and crc32(value, _KEYS) % _DELETES == 0


def as_tombstone(value: bytes) -> Headers:
    """Return the headers of what is sent without its value."""
    return ((_INSTEAD, value),)


def value_sent(value: bytes | None, headers: Headers) -> bytes | None:
    """Return what a record that was read stands for; `None` if it is none of these runs."""
    return dict(headers).get(_INSTEAD) if value is None else value


@final
class Superseded:
    """Which records may be gone, for the last reader has found a later one of the same key.

    What is damaged may have been one. Where a record that deletes its key may be gone as well, one
    that was sent, and for all that is known stood behind, counts like one that is found.
    """

    def __init__(
        self,
        partitions: Iterable[int] = (),
        *,
        has_tombstones: bool = False,
        loses_tombstones: bool = False,
        rules: Mapping[str, ProducerRules] | None = None,
    ) -> None:
        """Know what is compacted.

        Args:
            partitions: By their numbers in the run.
            has_tombstones: Whether some records delete their keys.
            loses_tombstones: Whether what deletes a key goes itself within a run.
            rules: What each producer asked for.
        """
        self.partitions = set(partitions)
        self.has_tombstones = has_tombstones
        self._loses_tombstones = has_tombstones and loses_tombstones
        self._rules = rules or {}
        self._newest: dict[tuple[int, bytes], int] = {}
        self._damage_ends: dict[int, int] = {}
        """By partition: the end of the last damage."""
        self._tombstones: dict[tuple[int, bytes], dict[bytes, int | None]] = {}
        """By partition and key: what was sent to delete it, and the offset if that is the only one
        at which it may be."""

    def sent(self, record: SentRecord) -> None:
        """Take note of what may delete a key."""
        if self._loses_tombstones and is_tombstone(record.value):
            self._those_like(record)[record.value] = None

    def refused(self, record: SentRecord) -> None:
        """Take note of what will never delete a key."""
        if self._loses_tombstones:
            self._those_like(record).pop(record.value, None)

    def acknowledged(self, ack: Acknowledged) -> None:
        """Take note of where something is that deletes a key."""
        record = ack.record
        rules = self._rules.get(record.producer)
        if rules is not None and rules.is_idempotent and record.value in self._those_like(record):
            self._those_like(record)[record.value] = ack.offset

    def _those_like(self, record: SentRecord) -> dict[bytes, int | None]:
        return self._tombstones.setdefault(
            (record.partition, key_of(record.value) or b""), dict[bytes, int | None]()
        )

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
        if newest > place[1]:
            return True
        return self._loses_tombstones and (
            is_tombstone(value)
            or any(
                offset is None or offset > place[1]
                for offset in self._tombstones.get((place[0], key), {}).values()
            )
        )
