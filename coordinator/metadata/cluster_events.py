"""Events of the cluster that need an administrator, such as a loss of committed records.

Pure: no clock, no I/O. An event is a record of the metadata log. The cluster keeps it until an
administrator acknowledges it; the controller logs it as a warning under the name of its kind.

Another kind of event is a member of `ClusterEventKind`. A command that the controller decides calls
`EventRecorder.record`; a broker submits `ReportLoss` with that kind.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, final

from msgspec.structs import replace

from tidelog.coordinator.metadata.records import (
    ClusterEvent,
    EventsAcknowledged,
    EventsSnapshot,
    Record,
)

EVENTS_KEPT_MAX: Final = 1000
"""Unacknowledged events; with more, the oldest are dropped and counted."""
_REPORTS_REMEMBERED_MAX: Final = 1000


class ClusterEventKind(StrEnum):
    """The kind of an event, which is also the name of its log line."""

    DATA_LOSS_ACCEPTED = "data_loss_accepted"
    """An administrator accepted an election that may have lost committed records."""
    ELECTED_WITHOUT_REPLICAS = "elected_without_replicas"
    """A partition has a leader, but replicas that may have more records were not back in time."""
    RECORDS_LOST = "records_lost"
    """A replica has truncated records that were committed; its leader lacks them."""
    LEADER_LACKS_RECORDS = "leader_lacks_records"
    """A replica keeps committed records that its leader lacks."""
    OLD_DIRECTORY = "old_directory"
    """A broker came back with a data directory that is older than the cluster knows."""
    ADMINISTRATOR_RECOVERED = "administrator_recovered"
    """An operator of a machine has given a user all rights, after a lock-out."""


class EventPlace(NamedTuple):
    """The partition of an event."""

    topic_id: bytes
    topic: str
    """Name of the topic, which outlives the topic."""
    partition: int
    leader_epoch: int
    """Leader epoch in which the event happened."""


class EventOffsets(NamedTuple):
    """The offsets of an event."""

    first: int
    end: int | None = None
    """Exclusive; `None` if unknown."""


@final
class ClusterEvents:
    """The unacknowledged events, and the counters of all events."""

    def __init__(self, kept: EventsSnapshot) -> None:
        """Start from a snapshot."""
        self._kept = kept

    def snapshot(self) -> EventsSnapshot:
        """Return all of it; `ClusterEvents` restores it."""
        return self._kept

    @property
    def unacknowledged(self) -> Sequence[ClusterEvent]:
        """The events that are kept until they are acknowledged, oldest first."""
        return self._kept.unacknowledged

    @property
    def total(self) -> int:
        """The number of events ever recorded, which is the id of the last one."""
        return self._kept.total

    @property
    def dropped(self) -> int:
        """The number of events that were dropped unacknowledged, because there were too many."""
        return self._kept.dropped

    @property
    def reports(self) -> Sequence[ClusterEvent]:
        """The last events that brokers reported, also acknowledged ones."""
        return self._kept.reports

    def by_topic(self) -> dict[bytes, list[ClusterEvent]]:
        """Return the unacknowledged events by topic id, oldest first."""
        found: dict[bytes, list[ClusterEvent]] = {}
        for each in self.unacknowledged:
            found.setdefault(each.topic_id, []).append(each)
        return found

    def apply(self, record: ClusterEvent | EventsAcknowledged) -> None:
        """Apply a record; the only way in which the events change."""
        kept = self._kept
        if isinstance(record, EventsAcknowledged):
            gone = set(record.event_ids)
            left = tuple(each for each in kept.unacknowledged if each.event_id not in gone)
            self._kept = replace(kept, unacknowledged=left)
            return
        events = (*kept.unacknowledged, record)
        reports = (*kept.reports, record) if record.is_reported else kept.reports
        self._kept = EventsSnapshot(
            events[-EVENTS_KEPT_MAX:],
            record.event_id,
            kept.dropped + max(0, len(events) - EVENTS_KEPT_MAX),
            reports[-_REPORTS_REMEMBERED_MAX:],
        )


@final
class EventRecorder:
    """The events that one command records."""

    def __init__(self, events: ClusterEvents, *, now_ms: int) -> None:
        """Number events after those of `events`; `now_ms` is the wall clock of the controller."""
        self._events = events
        self._now_ms = now_ms
        self._recorded: list[ClusterEvent] = []

    def record(
        self,
        kind: str,
        detail: str,
        *,
        place: EventPlace | None = None,
        node_id: int | None = None,
        offsets: EventOffsets | None = None,
        is_reported: bool = False,
    ) -> None:
        """Record an event, unless it is the report of a broker that was recorded before.

        Args:
            kind: A `ClusterEventKind`.
            detail: One line for administrators: cause and consequence.
            place: The partition; `None` for an event of a broker.
            node_id: The broker of the event; `None` for none.
            offsets: The records of the event; `None` if unknown.
            is_reported: Whether a broker reports the event, and may do so again.
        """
        topic_id, topic, partition, leader_epoch = place or (b"", "", None, None)
        first, end = offsets or (None, None)
        event = ClusterEvent(
            self._events.total + len(self._recorded) + 1,
            self._now_ms,
            str(kind),
            topic_id,
            topic,
            partition,
            node_id,
            leader_epoch,
            first,
            end,
            " ".join(detail.split()),
            is_reported,
        )
        if is_reported and self._is_known(event):
            return
        self._recorded.append(event)

    def records(self) -> list[Record]:
        """Return the events as records, oldest first."""
        return [*self._recorded]

    def _is_known(self, event: ClusterEvent) -> bool:
        return any(
            each.is_reported and _identity(each) == _identity(event)
            for each in (*self._events.reports, *self._recorded)
        )


def _identity(event: ClusterEvent) -> tuple[object, ...]:
    return (
        event.kind,
        event.topic_id,
        event.partition,
        event.node_id,
        event.leader_epoch,
        event.first_offset,
        event.end_offset,
    )
