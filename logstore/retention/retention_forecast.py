"""How much time, and how many bytes, until retention takes a record.

Pure: no clock, no I/O.
"""

import msgspec

from tidelog.logstore.config import LogConfig
from tidelog.logstore.retention.retention import LogFacts


class Outlook(msgspec.Struct, frozen=True, gc=False):
    """What is known of the segment of a record: it goes as a whole, and none behind it sooner."""

    newest_ms: int | None
    """The largest time of it and of those before it; `None` while it is the one that grows."""
    goes_at_ms: int | None
    """When it goes by age, at the earliest; Unix milliseconds. `None` if it does not."""
    bytes_left: int | None
    """What may come in until it goes by the size of its log, at the least; 0: it may go at any
    moment. `None` if it does not."""


def outlook_of(
    log: LogFacts, config: LogConfig, offset: int, *, timestamp_ms: int, now_ms: int
) -> Outlook:
    """Return how long a record stays.

    Args:
        log: Its log.
        config: What limits that.
        offset: Of the record.
        timestamp_ms: Of the record. It counts while its segment grows: that may end at any moment.
        now_ms: Unix milliseconds. A record from the future is one of now: see `SegmentFacts`.
    """
    behind_bytes = log.size_bytes
    newest_ms: int | None = 0
    for segment in log.sealed:
        behind_bytes -= segment.size_bytes
        newest_ms = max(newest_ms or 0, segment.newest_ms)
        if offset < segment.end_offset:
            break
    else:
        behind_bytes, newest_ms = 0, None
    goes_at_ms = bytes_left = None
    if config.retention_ms is not None:
        youngest_ms = min(timestamp_ms, now_ms) if newest_ms is None else newest_ms
        goes_at_ms = youngest_ms + config.retention_ms
    if config.retention_bytes is not None:
        bytes_left = max(0, config.retention_bytes - behind_bytes)
    return Outlook(newest_ms, goes_at_ms, bytes_left)
