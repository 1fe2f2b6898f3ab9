"""Timestamp from both clocks of a client.

Pure: declarations.
"""

from typing import NamedTuple


class Timestamp(NamedTuple):
    """A moment, read from both clocks."""

    monotonic: float
    """Seconds of `trio.current_time`, for deadlines."""
    unix_ms: int
    """Wall clock, for timestamps only."""
