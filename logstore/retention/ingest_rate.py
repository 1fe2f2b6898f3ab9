"""Ingest rate of a log, from the seal times of its segments.

Pure: no clock, no I/O.
"""

from typing import Final

import msgspec

from tidelog.logstore.retention.retention import LogSummary

_DAY_MS: Final = 24 * 3600 * 1000
WINDOW_MS: Final = 7 * _DAY_MS
"""Maximum age of the segments that count; older ingest says little about the present rate."""
SHORTEST_MS: Final = 60_000
"""Minimum time span; a shorter one says nothing about a day."""


class IngestRate(msgspec.Struct, frozen=True, gc=False):
    """Ingest of a log per day at the recent rate."""

    bytes_per_day: int
    offsets_per_day: int


def ingest_rate_of(log: LogSummary, *, now_ms: int) -> IngestRate | None:
    """Return the ingest rate of a log.

    It is the ingest after the first segment that was sealed within `WINDOW_MS`, divided by the time
    since that seal. Without such a segment it starts at the last seal, and without any seal at the
    first record. Retention does not matter, because it deletes at the other end. A replica that was
    copied within the window counts the copy. Bytes do not count records that compaction removed.

    Args:
        log: Summary of its segments.
        now_ms: Unix milliseconds.

    Returns:
        `None` if the start is less than `SHORTEST_MS` ago, or the log never had a record.
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
