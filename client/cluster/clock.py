"""One moment on both clocks.

Pure: declarations.
"""

from typing import NamedTuple


class Instant(NamedTuple):
    """When something happens."""

    monotonic: float
    """Seconds of `trio.current_time`, for deadlines."""
    unix_ms: int
    """Wall clock, for timestamps only."""
