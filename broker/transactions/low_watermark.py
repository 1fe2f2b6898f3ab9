"""Low watermark of a staging log: no open or unfinished transaction needs a record below it.

Pure: no clock, no I/O. A leader records the offset of its first append for each transaction.
Batches of earlier leaders may belong to any transaction that had begun when this leader took over:
they stay as long as one of those is needed. A transaction that this broker does not know yet cannot
have older batches here.
"""

from collections.abc import Collection
from typing import final


@final
class StagingLowWatermark:
    """One staging log under one leader."""

    def __init__(self, *, leader_epoch: int, inherited_below: int) -> None:
        """Begin to lead.

        Args:
            leader_epoch: Epoch of this leader.
            inherited_below: Transactions with a lower number may have batches of earlier leaders.
        """
        self.leader_epoch = leader_epoch
        self.size_bytes = 0
        """Size of the log when records were deleted last."""
        self._inherited_below = inherited_below
        self._first_offsets: dict[int, int] = {}

    def on_append(self, number: int, log_end_offset: int) -> None:
        """Record the offset of an append that is about to happen for a transaction."""
        self._first_offsets.setdefault(number, log_end_offset)

    def may_have(self, numbers: Collection[int]) -> bool:
        """Return whether the log may have batches of some of these transactions."""
        if not self._first_offsets.keys().isdisjoint(numbers):
            return True
        return any(number < self._inherited_below for number in numbers)

    def low_watermark(
        self, needed: Collection[int], *, log_start_offset: int, log_end_offset: int
    ) -> int:
        """Return the new log start offset, if only these transactions are needed.

        Args:
            needed: Transactions that are open, or committed and not finished.
            log_start_offset: The current log start offset.
            log_end_offset: The current log end offset.
        """
        if any(number < self._inherited_below for number in needed):
            return log_start_offset
        for number in [each for each in self._first_offsets if each not in needed]:
            del self._first_offsets[number]
        return min(self._first_offsets.values(), default=log_end_offset)
