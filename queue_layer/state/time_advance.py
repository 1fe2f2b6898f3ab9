"""Time that passes in parts, where very many leases and delays end.

Pure: no clock, no I/O. Messages become visible in the order of their times, and each part ends at a
time: so after each of them all is as it was then, and the order of delivery is the same.
"""

from typing import Final

from tidelog.queue_layer.state.queue_state import QueueState

ENDED_AT_ONCE: Final = 2_000
"""Leases or delays that end in one part, if not more of them end in its last millisecond."""


def advance_in_part(fold: QueueState, now_ms: int) -> bool:
    """Let time pass to now, or to where enough has happened; return whether it is now."""
    until_ms = min(
        fold.runs.time_of(ENDED_AT_ONCE, now_ms), fold.fresh.time_of(ENDED_AT_ONCE, now_ms)
    )
    fold.advance(until_ms)
    return until_ms >= now_ms
