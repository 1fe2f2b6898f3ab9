"""Checker of the records that the client library hands to an application."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import final

from tests.simulation.broker.keys import Superseded
from tests.simulation.checkers.run_history import (
    Acknowledged,
    Checker,
    Consumed,
    DamageReported,
    FinalLog,
    Place,
)
from tidelog.wire.errors import LogTruncatedError


@final
class ConsumersReadAll(Checker):
    """A consumer that reached the end has read all records of the log, and no others.

    Definition: for every offset from the log start to its position, and at least to the end of the
    acknowledged records, it has read the value that the last reader finds. Excused are offsets that
    it was told to be damaged or deleted, records that became corrupt after it read them, records
    that compaction may have removed before a consumer reached them, and everything from the lowest
    offset on that a crash was ever allowed to lose: there it may have read lost records and passed
    their successors. It need not have records that were not acknowledged and came later. It is told
    of lost records only if a crash was allowed to lose some that it has read.
    """

    def __init__(self, superseded: Superseded | None = None) -> None:
        """Set the rules for superseded records; without them no partition is compacted."""
        self._superseded = superseded or Superseded()
        self._consumed: list[Consumed] = []
        self._corrupted: list[DamageReported] = []
        self._lossless_ends: dict[int, int] = {}
        self._acknowledged_ends: dict[int, int] = {}

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker`."""
        if ack.offset is not None:
            partition = ack.record.partition
            end = max(ack.offset + 1, self._acknowledged_ends.get(partition, 0))
            self._acknowledged_ends[partition] = end

    def consumed(self, consumed: Consumed) -> None:
        """See `Checker`."""
        self._consumed.append(consumed)

    def corrupted(self, damage: DamageReported) -> None:
        """See `Checker`."""
        self._corrupted.append(damage)

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """See `Checker`."""
        for partition, end in ends.items():
            self._lossless_ends[partition] = min(end, self._lossless_ends.get(partition, end))

    def truncated(self, partition: int, error: LogTruncatedError) -> None:
        """See `Checker`."""
        end = self._lossless_ends.get(partition, inf)
        if error.fetch_offset is None or error.fetch_offset <= end:
            self.fail(f"partition {partition} has lost nothing below {end}: {error}")

    def ended(self, logs: Mapping[int, FinalLog]) -> None:
        """See `Checker`."""
        for consumed in self._consumed:
            for partition, next_offset in consumed.next_offsets.items():
                log = logs[partition]
                end = max(next_offset, self._acknowledged_ends.get(partition, 0))
                end = min(end, self._lossless_ends.get(partition, end))
                for offset in range(log.log_start_offset, end):
                    self._compare(consumed, (partition, offset), log.values.get(offset))

    def _compare(self, consumed: Consumed, place: Place, expected: bytes | None) -> None:
        found = consumed.values.get(place)
        if found == expected or (found is None and _is_within(place, consumed.left_out)):
            return
        if expected is None and _is_within(place, self._corrupted):
            return
        either = found or expected
        if None in (found, expected) and either and self._superseded.covers(place, either):
            return
        self.fail(
            f"{consumed.reader} read {_short(found)} at {place}, where the last reader found"
            f" {_short(expected)}"
        )


def _is_within(place: Place, ranges: Sequence[DamageReported]) -> bool:
    partition, offset = place
    return any(
        each.partition == partition and each.offset <= offset < each.next_offset for each in ranges
    )


def _short(value: bytes | None) -> str:
    return "nothing" if value is None else repr(value[:32])
