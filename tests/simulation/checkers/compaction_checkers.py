"""Checker of the records that compaction removes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import final

import pytest

from tests.simulation.broker.keys import Superseded, is_tombstone, key_of
from tests.simulation.checkers.run_history import (
    Acknowledged,
    Checker,
    Fetched,
    FinalLog,
    Place,
    SentRecord,
)


@pytest.mark.invariant("I3", "I27")
@final
class OnlySupersededGoes(Checker):
    """In a compacted topic a reader misses only records that have a later record of the same key.

    Definition: take every offset that some reader passed without a record, or that the last reader
    did not find between the log start and the high watermark. The record that was known there has a
    key, and the last reader has found that key at a later offset, or a tombstone is known to have
    deleted it there. A tombstone goes only where that may be within a run; in a single broker it
    never goes before all records that it deletes. Damaged records are not checked, and may have
    been a later record of any key.
    """

    def __init__(self, superseded: Superseded, *, is_alone: bool = True) -> None:
        """Set which partitions are compacted.

        `is_alone` is whether no replica can have been away while the others removed a tombstone.
        """
        self._superseded = superseded
        self._is_alone = is_alone
        self._values: dict[Place, bytes] = {}
        self.gone: defaultdict[int, set[int]] = defaultdict(set)
        """By partition: the offsets at which a reader missed a record."""

    def sent(self, record: SentRecord) -> None:
        """See `Checker`."""
        self._superseded.sent(record)

    def refused(self, record: SentRecord) -> None:
        """See `Checker`."""
        self._superseded.refused(record)

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker`."""
        self._superseded.acknowledged(ack)
        if ack.offset is not None and ack.record.partition in self._superseded.partitions:
            self._values[ack.record.partition, ack.offset] = ack.record.value

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        if fetched.partition in self._superseded.partitions:
            self._values |= {(fetched.partition, at): value for at, value in fetched.records}
            passed = range(max(fetched.fetch_offset, 0), fetched.next_offset)
            self.gone[fetched.partition].update(
                set(passed).difference(offset for offset, _ in fetched.records)
            )

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """See `Checker`."""
        self._values = {
            place: value
            for place, value in self._values.items()
            if place[1] < ends.get(place[0], place[1] + 1)
        }
        for partition, end in ends.items():
            if partition in self._superseded.partitions:
                self.gone[partition] = {at for at in self.gone[partition] if at < end}

    def ended(self, logs: Mapping[int, FinalLog]) -> None:
        """See `Checker`."""
        for partition in sorted(self._superseded.partitions):
            gone, log = self.gone[partition], logs[partition]
            there = range(log.log_start_offset, log.high_watermark)
            gone.update(set(there).difference(log.values))
            for damage in log.damage:
                gone.difference_update(range(damage.offset, damage.next_offset))
            for offset in sorted(gone.intersection(there)):
                place = (partition, offset)
                value = self._values.get(place)
                if value is not None and not self._superseded.covers(place, value):
                    self.fail(f"{value[:32]!r} at {place} is gone, and no later one has its key")
                if value is not None and self._is_alone and not log.damage:
                    self._check_deleted(place, value, log)

    def _check_deleted(self, place: Place, value: bytes, log: FinalLog) -> None:
        """Check that no deleted record is left once its tombstone is gone."""
        if self._superseded.has_tombstones and is_tombstone(value):
            key = key_of(value)
            for offset, older in log.values.items():
                if offset < place[1] and key_of(older) == key:
                    self.fail(
                        f"{older[:32]!r} at {offset} is there, whose deletion at {place} is gone"
                    )


def ranges_of(offsets: Iterable[int]) -> list[range]:
    """Return offsets as the smallest number of ranges."""
    ranges: list[range] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1].stop == offset:
            ranges[-1] = range(ranges[-1].start, offset + 1)
        else:
            ranges.append(range(offset, offset + 1))
    return ranges
