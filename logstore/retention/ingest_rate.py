"""How fast a log grows, by when its segments were sealed.

Pure: no clock, no I/O.
"""

from typing import Final

import msgspec

from tidelog.logstore.retention.retention import LogSummary

_DAY_MS: Final = 24 * 3600 * 1000
WINDOW_MS: Final = 7 * _DAY_MS
"""What was sealed longer ago says little of what comes in now."""
SHORTEST_MS: Final = 60_000
"""What came in within less time says nothing of a day."""


class IngestRate(msgspec.Struct, frozen=True, gc=False):
    """What comes into a log on a day, if it goes on as it did."""

    bytes_per_day: int
    offsets_per_day: int


def ingest_rate_of(log: LogSummary, *, now_ms: int) -> IngestRate | None:
    """Return how fast a log grows.

    What came in behind the first segment that was sealed within `WINDOW_MS`, by the time since
    then; if none was, behind the last one that was sealed; and if none was ever, behind the first
    record. Retention does not matter: it takes from the other end. A replica that was copied within
    the window counts the copying, and what compaction took out is not counted in bytes.

    Args:
        log: Its segments.
        now_ms: Unix milliseconds.

    Returns:
        `None` if that is less than `SHORTEST_MS` ago, or nothing ever came in.
    """
    sealed, active = log.sealed, log.active
    size_bytes, from_offset, since_ms = (
        active.size_bytes,
        active.base_offset,
        active.first_append_ms,
    )
    if sealed:
        since_ms = sealed[-1].sealed_at_ms
        for older, newer in zip(sealed[-2::-1], sealed[:0:-1], strict=True):
            if older.sealed_at_ms < now_ms - WINDOW_MS:
                break
            size_bytes += newer.size_bytes
            from_offset, since_ms = older.end_offset, older.sealed_at_ms
    if since_ms is None or now_ms - since_ms < SHORTEST_MS:
        return None
    days = (now_ms - since_ms) / _DAY_MS
    return IngestRate(round(size_bytes / days), round((active.end_offset - from_offset) / days))
