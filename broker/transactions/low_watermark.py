"""Where a staging log may begin: below it is nothing that anybody will ever need.

Pure: no clock, no I/O. A leader notes where it began to append for each transaction. What earlier
leaders appended may be of any transaction that had been begun when this one began to lead: it stays
as long as one of those is needed. A transaction that this broker has not heard of yet cannot have
anything here that is older.
"""

from collections.abc import Collection
from typing import final


@final
class StagingLowWatermark:
    """One staging log under one leader."""

    def __init__(self, *, leader_epoch: int, inherited_below: int) -> None:
        """Begin to lead.

        Args:
            leader_epoch: Of this leader.
            inherited_below: Transactions with a lower number may have been appended for by earlier
                leaders.
        """
        self.leader_epoch = leader_epoch
        self._inherited_below = inherited_below
        self._first_offsets: dict[int, int] = {}

    def on_append(self, number: int, log_end_offset: int) -> None:
        """Take note that something is about to be appended for a transaction."""
        self._first_offsets.setdefault(number, log_end_offset)

    def low_watermark(
        self, needed: Collection[int], *, log_start_offset: int, log_end_offset: int
    ) -> int:
        """Return where the log may begin, if these transactions are needed and no others.

        Args:
            needed: Those that are open, or committed and not done.
            log_start_offset: Where it begins now.
            log_end_offset: Where it ends.
        """
        if any(number < self._inherited_below for number in needed):
            return log_start_offset
        for number in [each for each in self._first_offsets if each not in needed]:
            del self._first_offsets[number]
        return min(self._first_offsets.values(), default=log_end_offset)
