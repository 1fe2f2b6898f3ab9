"""Timestamp from both clocks of a client.

Pure: declarations.
"""

from typing import final

import msgspec


@final
class Timestamp(msgspec.Struct, frozen=True, gc=False):
    """A moment, read from both clocks."""

    monotonic: float
    """Seconds of `trio.current_time`, for deadlines."""
    unix_ms: int
    """Wall clock, for timestamps only."""
