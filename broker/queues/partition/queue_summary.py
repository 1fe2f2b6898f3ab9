"""Summary of the messages of a queue partition, which stays true when the partition is unloaded.

Pure: no clock, no I/O.
"""

import msgspec

from tidelog.queue_layer.state.queue_state import QueueState


class QueueSummary(msgspec.Struct, frozen=True, gc=False):
    """The messages of one partition in numbers; a hundred thousand of them take little memory."""

    visible: int
    in_flight: int
    delayed: int
    dead: int
    records_end: int
    """Records from here on are not counted: more may have arrived since."""
    oldest_offset: int
    """See `QueueState`."""
    time_ms: int
    """Time of the summary in Unix milliseconds, 0 if nothing is in flight: to save memory."""
    changes_at_ms: int | None
    """Time at which the next messages become visible by themselves, in Unix milliseconds."""

    def has_changed(self, now_ms: int) -> bool:
        """Return whether messages have become visible since then."""
        return self.changes_at_ms is not None and self.changes_at_ms <= now_ms


def summary_of(state: QueueState) -> QueueSummary:
    """Return the summary of a state, as of its time."""
    counts = state.counts()
    return QueueSummary(
        *counts,
        state.records_from,
        state.oldest_offset,
        state.time_ms if counts.in_flight else 0,
        state.next_deadline_ms,
    )
