"""Log events of metadata records: brokers fenced and back, leaders elected, ISRs changed.

Pure: no clock, no I/O. The controller logs them when it proposes the records. A change of very many
partitions is one event for each broker and cause, with a count and the first partitions. Each
partition then has a `debug` event of its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, final

from tidelog.coordinator.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerRegistration,
    BrokerUnregistered,
    ClusterEvent,
    PartitionChanges,
    PartitionRegistration,
    Record,
)
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.transactions import TRANSACTION_RECORDS

NAMED_MAX: Final = 10
"""Maximum number of partitions that one event names."""


class LogEvent(NamedTuple):
    """One event for the log."""

    name: str
    severity: str
    fields: dict[str, object]


class _Transition(NamedTuple):
    topic: str
    number: int
    before: PartitionRegistration
    after: PartitionRegistration


class _Election(NamedTuple):
    """The kind and cause of an election; equal ones share an event."""

    kind: str
    """`planned`, `failover`, `recovery` or `unclean`."""
    leader_id: int
    reason: str


def log_events(
    state: ClusterState, records: Sequence[Record], *, fenced_because: str = ""
) -> list[LogEvent]:
    """Return the log events of records; `state` is from before them.

    `fenced_because` is the cause for which a broker is fenced, if the records do not show it.
    """
    if TRANSACTION_RECORDS.issuperset(map(type, records)):
        return []
    return _EventsOf(state, records, fenced_because).all()


def places(partitions: Sequence[tuple[str, int]], count: int | None = None) -> dict[str, object]:
    """Return the fields of an event about one or more partitions: the first, and the count.

    With `count`, `partitions` may be the first `NAMED_MAX` of so many.
    """
    topic, number = partitions[0]
    count = len(partitions) if count is None else count
    fields: dict[str, object] = {"topic": topic, "partition": number, "count": count}
    if count > 1:
        fields["partitions"] = [f"{topic}/{number}" for topic, number in partitions[:NAMED_MAX]]
    return fields


@final
class _EventsOf:
    """The log events of the records of one command."""

    def __init__(self, state: ClusterState, records: Sequence[Record], fenced_because: str) -> None:
        self._state = state
        self._records = records
        self._fenced_because = fenced_because
        self._brokers: dict[int, BrokerRegistration | BrokerChanged | None] = {}
        """Brokers that the records change, as they are after them."""

    def all(self) -> list[LogEvent]:
        events = [event for record in self._records for event in self._of_broker(record)]
        transitions = list(self._transitions())
        events += self._elections(transitions)
        events += _isr_changes(transitions)
        recorded = [each for each in self._records if isinstance(each, ClusterEvent)]
        return events + [_of_cluster_event(each) for each in recorded]

    def _of_broker(self, record: Record) -> Iterator[LogEvent]:
        match record:
            case BrokerRegistered(broker=after):
                reason = "another process of the broker has registered"
                self._brokers[after.node_id] = after
            case BrokerChanged() as after:
                reason = self._fenced_because or "it is fenced by a command"
                self._brokers[after.node_id] = after
            case BrokerUnregistered():
                self._brokers[record.node_id] = None
                return
            case _:
                return
        before = self._state.brokers.get(after.node_id)
        was_fenced = before is None or before.is_fenced
        if after.is_fenced and not was_fenced:
            if before is not None and before.is_shutting_down:
                reason = "it has stopped in order"
            yield LogEvent(
                "node_fenced",
                "info" if before is not None and before.is_shutting_down else "warning",
                {"node_id": after.node_id, "reason": reason},
            )
        elif was_fenced and not after.is_fenced:
            yield LogEvent("node_unfenced", "info", {"node_id": after.node_id})
        elif after.is_shutting_down and not (before is not None and before.is_shutting_down):
            yield LogEvent("node_stopping", "info", {"node_id": after.node_id})

    def _transitions(self) -> Iterator[_Transition]:
        for record in self._records:
            if not isinstance(record, PartitionChanges):
                continue
            for topic_id, number, after in record.changes():
                topic = self._state.catalog.topic_by_id(topic_id)
                before = self._state.partition(topic_id, number)
                if before is not None:
                    name = topic_id.hex() if topic is None else topic.name
                    yield _Transition(name, number, before, after)

    def _elections(self, transitions: Iterable[_Transition]) -> list[LogEvent]:
        elected: dict[_Election, list[tuple[str, int]]] = {}
        offline: dict[int | None, list[tuple[str, int]]] = {}
        single: list[LogEvent] = []
        known: dict[tuple[int, int], tuple[list[tuple[str, int]], dict[str, object]]] = {}
        """Places of an election and fields of its events, by the ids of partitions before and
        after it: equal ones are few objects."""
        for topic, number, before, after in transitions:
            if after.leader == before.leader:
                continue
            if after.leader is None:
                offline.setdefault(before.leader, []).append((topic, number))
                continue
            case = (id(before), id(after))
            if case not in known:
                election = self._election(before, after, after.leader)
                fields = _fields_of(election, before, after)
                known[case] = (elected.setdefault(election, []), fields)
            found, fields = known[case]
            found.append((topic, number))
            fields = {"topic": topic, "partition": number, **fields}
            single.append(LogEvent("leader_elected", "debug", fields))
        events = [
            LogEvent(
                "leaders_elected",
                "warning" if each.kind in ("recovery", "unclean") else "info",
                {"kind": each.kind, "leader_id": each.leader_id, **places(found)}
                | {"is_unclean": each.kind == "unclean", "reason": each.reason},
            )
            for each, found in elected.items()
        ]
        events += [
            LogEvent(
                "partitions_offline",
                "warning",
                {
                    "last_known_leader": leader,
                    **places(found),
                    "reason": "no replica that has all committed records can lead",
                },
            )
            for leader, found in offline.items()
        ]
        return events + single

    def _election(
        self, before: PartitionRegistration, after: PartitionRegistration, leader: int
    ) -> _Election:
        """Return the kind and cause of an election, by the partition before and after it."""
        if after.data_loss_epoch == after.leader_epoch:
            return _Election("unclean", leader, "an administrator accepted the loss of records")
        old = before.leader
        if old is None:
            unverified = {each.node_id for each in before.unverified_replicas}
            if leader in unverified:
                return _Election("recovery", leader, "it has the longest log of the replicas")
            return _Election("failover", leader, "it has all committed records, and is back")
        kind, reason = self._why_replaced(old, after)
        return _Election(kind, leader, reason)

    def _why_replaced(self, old: int, after: PartitionRegistration) -> tuple[str, str]:
        """Return the kind and cause of an election that replaced the leader `old`."""
        status = self._brokers.get(old, self._state.brokers.get(old))
        if old not in after.replicas:
            return "planned", f"the replica of broker {old} has moved"
        if status is None or status.is_fenced:
            return "failover", f"broker {old} is fenced"
        if status.is_shutting_down:
            return "planned", f"broker {old} is stopping"
        if old not in after.in_sync_replicas:
            return "failover", f"the replica of broker {old} has failed"
        return "planned", "it is the preferred leader"


def _fields_of(
    election: _Election, before: PartitionRegistration, after: PartitionRegistration
) -> dict[str, object]:
    return {
        "leader_id": after.leader,
        "leader_epoch": after.leader_epoch,
        "previous_leader_id": before.last_known_leader if before.leader is None else before.leader,
        "in_sync_replicas": list(after.in_sync_replicas),
        "kind": election.kind,
        "reason": election.reason,
    }


def _isr_changes(transitions: Iterable[_Transition]) -> list[LogEvent]:
    """Return an event for each broker that left or joined ISRs.

    A replica that a reassignment removes is not missing from the ISR.
    """
    left: dict[int, list[_Transition]] = {}
    joined: dict[int, list[_Transition]] = {}
    for each in transitions:
        before, after = each.before, each.after
        was_in_sync, in_sync = before.in_sync_replicas, after.in_sync_replicas
        if was_in_sync == in_sync:
            continue
        for node_id in was_in_sync:
            if node_id not in in_sync and node_id in after.replicas:
                left.setdefault(node_id, []).append(each)
        for node_id in in_sync:
            if node_id not in was_in_sync:
                joined.setdefault(node_id, []).append(each)
    return [
        *(_isr_event("isr_shrunk", node_id, found) for node_id, found in left.items()),
        *(_isr_event("isr_grown", node_id, found) for node_id, found in joined.items()),
    ]


def _isr_event(name: str, node_id: int, found: Sequence[_Transition]) -> LogEvent:
    under_replicated = [each for each in found if _is_under_replicated(each.after)]
    shown = under_replicated or found
    first = shown[0]
    fields = {
        "node_id": node_id,
        **places([(each.topic, each.number) for each in shown[:NAMED_MAX]], len(shown)),
        "count": len(found),
        "under_replicated_count": len(under_replicated),
        "in_sync_replicas": list(first.after.in_sync_replicas),
        "replication_factor": first.after.replication_factor,
    }
    return LogEvent(name, "warning" if under_replicated else "info", fields)


def _is_under_replicated(partition: PartitionRegistration) -> bool:
    return len(partition.in_sync_replicas) < partition.replication_factor


def _of_cluster_event(event: ClusterEvent) -> LogEvent:
    return LogEvent(
        event.kind,
        "warning",
        {
            "event_id": event.event_id,
            "topic": event.topic,
            "partition": event.partition,
            "node_id": event.node_id,
            "first_offset": event.first_offset,
            "end_offset": event.end_offset,
            "record_count": event.record_count,
            "detail": event.detail,
        },
    )
