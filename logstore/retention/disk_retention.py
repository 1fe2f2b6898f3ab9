"""Which segments go when the logs on one disk take too much together, and how soon.

Pure: no clock, no I/O.
"""

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import final

from tidelog.logstore.retention.retention import LogFacts


def surplus_counts(logs: Sequence[LogFacts], *, bytes_max: int) -> list[int]:
    """Return of each log how many of its oldest sealed segments go, in the order given.

    Of all logs together the oldest ones, by their newest records, until no more than `bytes_max`
    is left. The active segment of a log stays, so more may be left.
    """
    surplus_bytes = sum(log.size_bytes for log in logs) - bytes_max
    counts = [0] * len(logs)
    oldest = [(log.sealed[0].newest_ms, place) for place, log in enumerate(logs) if log.sealed]
    heapq.heapify(oldest)
    while surplus_bytes > 0 and oldest:
        _, place = heapq.heappop(oldest)
        sealed = logs[place].sealed
        surplus_bytes -= sealed[counts[place]].size_bytes
        counts[place] += 1
        if counts[place] < len(sealed):
            heapq.heappush(oldest, (sealed[counts[place]].newest_ms, place))
    return counts


@final
class DiskOutlook:
    """How much more may come in to all logs until a segment of one of them goes.

    Of what was so at one moment. Costs a sort of all segments, and then little for each question.
    """

    def __init__(self, logs: Sequence[LogFacts], *, bytes_max: int) -> None:
        """Know of logs that may take `bytes_max` together."""
        self.bytes_max = bytes_max
        self._room_bytes = bytes_max - sum(log.size_bytes for log in logs)
        aged = sorted(
            (newest_ms, segment.size_bytes)
            for log in logs
            for newest_ms, segment in zip(
                accumulate((each.newest_ms for each in log.sealed), max), log.sealed, strict=True
            )
        )
        self._ages = [newest_ms for newest_ms, _ in aged]
        self._bytes_before = [0, *accumulate(size_bytes for _, size_bytes in aged)]

    def bytes_left(self, newest_ms: int | None) -> int:
        """Return what may come in until a segment goes, at the least; 0: it may at any moment.

        Args:
            newest_ms: The largest time of the segment and of those before it in its log; `None` of
                one that grows: that may end at any moment.
        """
        before = len(self._ages) if newest_ms is None else bisect_left(self._ages, newest_ms)
        return max(0, self._room_bytes + self._bytes_before[before])
