"""The age of a broker's metadata: the time since they were known to be current.

Pure: no clock, no I/O. Times are monotonic milliseconds of the caller.

The controller answers a heartbeat only after a majority has confirmed its leadership, and names an
index of the metadata. A broker that has applied that index had, when it sent the heartbeat, all
metadata that were committed before.
"""

from typing import NamedTuple, final


class _Answer(NamedTuple):
    metadata_index: int
    sent_at_ms: int


@final
class MetadataAge:
    """The answers to a broker's heartbeats, as evidence of its metadata."""

    def __init__(self) -> None:
        """Start without evidence."""
        self._answers: list[_Answer] = []
        """Answers whose index is not known to be applied. The first and the last are enough."""
        self._current_at_ms: int | None = None

    def answered(self, *, metadata_index: int, sent_at_ms: int) -> None:
        """Record the answer to a heartbeat that was sent at `sent_at_ms`."""
        self._answers[1:] = [_Answer(metadata_index, sent_at_ms)]

    def age_ms(self, *, applied_index: int, now_ms: int) -> int | None:
        """Return the time since the metadata were current; `None` if they never were."""
        while self._answers and self._answers[0].metadata_index <= applied_index:
            self._current_at_ms = self._answers.pop(0).sent_at_ms
        return None if self._current_at_ms is None else max(0, now_ms - self._current_at_ms)
