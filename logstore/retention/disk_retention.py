"""Which segments go when the logs on one disk take too much together.

Pure: no clock, no I/O.
"""

import heapq
from collections.abc import Sequence

from tidelog.logstore.retention.retention import LogSummary


def surplus_counts(logs: Sequence[LogSummary], *, bytes_max: int) -> list[int]:
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
