"""Story of one message: its waits and leases with start and end, from the events of its history.

Pure: no clock, no I/O. The expiry of a lease is no event of a queue: it follows from the visibility
timeout and the next event.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, final

import msgspec

from tidelog.client.queue.inspect.history import EventKind, HistoryEvent
from tidelog.wire.batch.record_batch import Headers

EXPIRED: Final = "lease-expired"
IN_FLIGHT: Final = "in-flight"
WAITING: Final = "waiting"
_RELEASES: Final = {EventKind.RELEASE, EventKind.RETURN, EventKind.SEEK, EventKind.MOVE_FAILED}
"""Events after which the message waits for a receiver."""
_MOVES: Final = {EventKind.DEAD_LETTER, EventKind.REDRIVE, EventKind.RETARGET}
"""Events after which the message waits for its move to another topic."""
_ENDS: Final = {
    EventKind.DELETE,
    EventKind.EXPIRE,
    EventKind.MOVED,
    EventKind.PURGE,
    EventKind.TRIM,
}
"""Events after which the message is not in the queue any more."""


class MessageInterval(NamedTuple):
    """Time between two events of a message."""

    is_lease: bool
    """Whether a receiver had the message; otherwise it waited for one, or for a move."""
    start_ms: int
    """Unix milliseconds."""
    end_ms: int
    outcome: str
    """Event at its end, as in `HistoryEvent.kind`, or `lease-expired`. For an interval that has not
    ended, `in-flight` or `waiting`."""
    receive_count: int = 0
    """Receives up to and including this lease; 0 for a wait."""
    holder: str = ""
    """Name of the receiver."""
    reason: str = ""

    @property
    def is_failure(self) -> bool:
        """Whether a receiver had the message and failed: a release without a reason is none."""
        is_release = self.outcome == EventKind.RELEASE
        return self.is_lease and (
            self.outcome in {EXPIRED, EventKind.DEAD_LETTER} or (is_release and bool(self.reason))
        )


@final
class MessageStory(msgspec.Struct, frozen=True):
    """What happened to one message in a queue."""

    queue: str
    message_id: str
    headers: Headers
    """Headers of the record; empty if the topic does not keep it any more."""
    sent_ms: int | None
    """Time of the send in Unix milliseconds; `None` if the topic does not keep the record."""
    intervals: list[MessageInterval]
    """Waits and leases, by time."""
    events: list[HistoryEvent]
    """Events that they are made of, by time."""


def intervals_of(
    events: Iterable[HistoryEvent], *, sent_ms: int | None, now_ms: int
) -> list[MessageInterval]:
    """Return the waits and leases of a message.

    Args:
        events: Events of the message, by time.
        sent_ms: Time of the send in Unix milliseconds; `None` if it is unknown.
        now_ms: Current time, the end of an interval that has not ended.
    """
    fold = _Fold(sent_ms)
    for event in events:
        fold.take(event)
    fold.finish(now_ms)
    return fold.intervals


class _Lease(NamedTuple):
    start_ms: int
    until_ms: int
    receive_count: int
    holder: str


@final
class _Fold:
    """Intervals so far, and the one that is open."""

    def __init__(self, sent_ms: int | None) -> None:
        self.intervals: list[MessageInterval] = []
        self._lease: _Lease | None = None
        self._waiting_since_ms = sent_ms

    def take(self, event: HistoryEvent) -> None:
        time_ms, kind = event.time_ms, event.kind
        lease = self._lease
        if lease is not None and kind in {EventKind.EXTEND, EventKind.REPEAT}:
            self._lease = lease._replace(until_ms=event.visible_at_ms or lease.until_ms)
            return
        if lease is not None and (kind is EventKind.RECEIVE or lease.until_ms < time_ms):
            self._expire(lease, min(lease.until_ms, time_ms))
        if kind is EventKind.RECEIVE:
            self._end(time_ms, kind)
            until_ms = event.visible_at_ms or time_ms
            self._lease = _Lease(time_ms, until_ms, event.receive_count, event.holder)
        elif kind in _RELEASES or kind in _MOVES or kind in _ENDS:
            self._end(time_ms, kind, event.reason)
            if kind not in _ENDS:
                self._waiting_since_ms = time_ms

    def finish(self, now_ms: int) -> None:
        """End the interval that is open."""
        lease = self._lease
        if lease is not None and lease.until_ms <= now_ms:
            self._expire(lease, lease.until_ms)
        self._end(now_ms, WAITING if self._lease is None else IN_FLIGHT)

    def _expire(self, lease: _Lease, until_ms: int) -> None:
        """End a lease by its timeout; the message waits from then on."""
        self._end(max(until_ms, lease.start_ms), EXPIRED)
        self._waiting_since_ms = until_ms

    def _end(self, time_ms: int, outcome: str, reason: str = "") -> None:
        """End the lease or the wait that is open, if there is one."""
        if self._lease is not None:
            start_ms, _, receive_count, holder = self._lease
            interval = MessageInterval(
                True, start_ms, time_ms, str(outcome), receive_count, holder, reason
            )
            self.intervals.append(interval)
        elif self._waiting_since_ms is not None:
            # The clocks of a sender and of a broker may differ.
            start_ms = min(self._waiting_since_ms, time_ms)
            self.intervals.append(
                MessageInterval(False, start_ms, time_ms, str(outcome), reason=reason)
            )
        self._lease = self._waiting_since_ms = None
