"""Damaged ranges of a log.

Pure: no clock, no I/O.
"""

from collections.abc import Iterable, Iterator
from typing import final

import msgspec


class DamagedRange(msgspec.Struct, frozen=True, array_like=True):
    """Records whose stored bytes are known to be damaged."""

    offset: int
    end_offset: int
    """Exclusive end: the first offset after the damage."""


@final
class DamagedRanges:
    """All known damage of one log.

    Invariant: ranges are in order, not empty, and do not touch each other.
    """

    def __init__(self, ranges: Iterable[DamagedRange] = ()) -> None:
        """Start with the ranges of a checkpoint."""
        self.ranges: list[DamagedRange] = []
        """All of them, lowest first; to be read only."""
        for damaged in ranges:
            self.add(damaged.offset, damaged.end_offset)

    def __iter__(self) -> Iterator[DamagedRange]:
        """Return the ranges, lowest first."""
        return iter(self.ranges)

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self.ranges)

    def add(self, offset: int, end_offset: int) -> bool:
        """Add damage; return whether any of it is new."""
        if offset >= end_offset:
            return False
        touched = [
            damaged
            for damaged in self.ranges
            if damaged.offset <= end_offset and damaged.end_offset >= offset
        ]
        united = DamagedRange(
            min([offset, *(damaged.offset for damaged in touched)]),
            max([end_offset, *(damaged.end_offset for damaged in touched)]),
        )
        if touched == [united]:
            return False
        others = [damaged for damaged in self.ranges if damaged not in touched]
        self.ranges = sorted([*others, united], key=lambda damaged: damaged.offset)
        return True

    def remove(self, offset: int, end_offset: int) -> None:
        """Remove the records from `offset` to `end_offset` (exclusive): they are repaired."""
        parts = [
            part
            for each in self.ranges
            for part in (
                DamagedRange(each.offset, min(each.end_offset, offset)),
                DamagedRange(max(each.offset, end_offset), each.end_offset),
            )
        ]
        self.ranges = [part for part in parts if part.offset < part.end_offset]

    def at(self, offset: int) -> DamagedRange | None:
        """Return the damage that covers `offset`."""
        behind = self.first_ending_above(offset)
        return behind if behind is not None and behind.offset <= offset else None

    def first_ending_above(self, offset: int) -> DamagedRange | None:
        """Return the damage that covers `offset`, or else the next damage after it."""
        return next((damaged for damaged in self.ranges if damaged.end_offset > offset), None)

    def touches(self, offset: int, end_offset: int) -> bool:
        """Return whether any of the offsets from `offset` to `end_offset` is damaged."""
        behind = self.first_ending_above(offset) if self.ranges else None
        return behind is not None and max(behind.offset, offset) < end_offset

    def truncate_start(self, log_start_offset: int) -> None:
        """Remove damage below the new start of the log."""
        self.ranges = [
            DamagedRange(max(each.offset, log_start_offset), each.end_offset)
            for each in self.ranges
            if each.end_offset > log_start_offset
        ]

    def truncate_end(self, log_end_offset: int) -> None:
        """Remove damage at or above the new end of the log."""
        self.ranges = [
            DamagedRange(each.offset, min(each.end_offset, log_end_offset))
            for each in self.ranges
            if each.offset < log_end_offset
        ]
