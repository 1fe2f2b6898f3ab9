"""The effect of metadata records on one broker: partitions that it leads, follows, stops, deletes.

Pure: no clock, no I/O; it changes only the image that it advances. A broker acts on changes, so an
entry costs it what is in the entry. Replicas are deleted only when the log says so, by a deleted
topic or by another assignment: never because something is missing (I65).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidelog.coordinator.metadata.catalog import (
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicGrown,
)
from tidelog.coordinator.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    EqualPartitionsChanged,
    PartitionRegistration,
    PartitionsAdded,
    PartitionsChanged,
    Record,
)
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.transactions import (
    PartsAppended,
    TransactionCommitted,
    TransactionRecord,
)

Key = tuple[bytes, int]
"""Topic id and number of a partition."""


@dataclass(slots=True)
class BrokerDelta:
    """The changes for one broker. Each partition is in at most one of the dicts."""

    lead: dict[Key, PartitionRegistration] = field(default_factory=dict[Key, PartitionRegistration])
    """Partitions that the broker leads in a new leader epoch."""
    lead_on: dict[Key, PartitionRegistration] = field(
        default_factory=dict[Key, PartitionRegistration]
    )
    """Partitions that the broker still leads in the same epoch, with another assignment or ISR."""
    follow: dict[Key, PartitionRegistration] = field(
        default_factory=dict[Key, PartitionRegistration]
    )
    """Changed partitions with a replica here and another leader, or none."""
    remove: dict[Key, None] = field(default_factory=dict[Key, None])
    """Partitions whose replica moved from this broker to others."""
    delete: dict[Key, None] = field(default_factory=dict[Key, None])
    """Partitions with a replica here whose topics are deleted."""
    altered_topics: dict[bytes, None] = field(default_factory=dict[bytes, None])
    """Topics with changed settings."""
    reshaped_topics: dict[bytes, str] = field(default_factory=dict[bytes, str])
    """Topics that were created, deleted or grew, with their names."""
    has_changed_brokers: bool = False
    """Whether brokers registered, left, moved, or were fenced or unfenced."""
    has_transactions: bool = False
    """Whether transactions were begun, decided or completed, or may have been. Parts for a deleted
    topic are complete as well; that is among `reshaped_topics`."""
    committed_parts: dict[Key, None] = field(default_factory=dict[Key, None])
    """Partitions with records of new commits, or of all commits after a snapshot."""
    appended_parts: list[tuple[int, Key]] = field(default_factory=list[tuple[int, Key]])
    """Parts that the cluster has recorded as appended, with the number of the commit."""
    is_from_snapshot: bool = False
    """Whether parts may be appended that are not among `appended_parts`."""

    @classmethod
    def from_records(
        cls, state: ClusterState, records: Iterable[Record], node_id: int
    ) -> "BrokerDelta":
        """Apply committed records to an image, and return the changes for a broker."""
        delta = cls()
        before: dict[Key, PartitionRegistration | None] = {}
        for record in records:
            if isinstance(record, TransactionRecord):
                state.apply(record)
                delta._note_transaction(record)
                continue
            for key, partition in _touched(state, record):
                before.setdefault(key, partition)
            if isinstance(record, TopicCreated):
                delta.reshaped_topics[record.topic_id] = record.name
            elif isinstance(record, TopicGrown | TopicDeleted):
                topic = state.catalog.topic_by_id(record.topic_id)
                assert topic is not None
                delta.reshaped_topics[record.topic_id] = topic.name
            state.apply(record)
            if isinstance(record, TopicAltered):
                delta.altered_topics[record.topic_id] = None
            elif isinstance(record, BrokerRegistered | BrokerChanged | BrokerUnregistered):
                delta.has_changed_brokers = True
        delta._compare(before, state, node_id)
        return delta

    @classmethod
    def from_states(cls, before: ClusterState, after: ClusterState, node_id: int) -> "BrokerDelta":
        """Return the changes for a broker between an image and a newer one from a snapshot."""
        delta = cls(
            has_changed_brokers=before.brokers != after.brokers,
            has_transactions=True,
            committed_parts=dict.fromkeys(after.transactions.keys_with_parts()),
            is_from_snapshot=True,
        )
        partitions: dict[Key, PartitionRegistration | None] = dict.fromkeys(_keys(after))
        partitions |= {key: before.partition(*key) for key in _keys(before)}
        delta._compare(partitions, after, node_id)
        for topic in after.catalog.topics:
            known = before.catalog.topic_by_id(topic.topic_id)
            if known is not None and (known.overrides, known.queue) != (
                topic.overrides,
                topic.queue,
            ):
                delta.altered_topics[topic.topic_id] = None
            if known is None or known.partition_count != topic.partition_count:
                delta.reshaped_topics[topic.topic_id] = topic.name
        for topic in before.catalog.topics:
            if after.catalog.topic_by_id(topic.topic_id) is None:
                delta.reshaped_topics[topic.topic_id] = topic.name
        return delta

    def _note_transaction(self, record: TransactionRecord) -> None:
        self.has_transactions = True
        if isinstance(record, TransactionCommitted):
            for part in record.parts:
                self.committed_parts[part.topic_id, part.partition] = None
        elif isinstance(record, PartsAppended):
            for appended in record.parts:
                key = (appended.topic_id, appended.partition)
                self.appended_parts.append((appended.commit_number, key))

    def _compare(
        self, before: Mapping[Key, PartitionRegistration | None], state: ClusterState, node_id: int
    ) -> None:
        changed: dict[tuple[int, int], dict[Key, PartitionRegistration] | None] = {}
        """Where partitions belong, by the ids of what they were and are: equal ones are few
        objects, and all of them are kept meanwhile."""
        for key, was in before.items():
            now = state.partition(*key)
            if now is was:
                continue
            if now is None:
                if _has_replica(was, node_id) and state.catalog.was_deleted(key[0]):
                    self.delete[key] = None
                continue
            case = (id(was), id(now))
            if case not in changed:
                changed[case] = self._place(was, now, node_id)
            place = changed[case]
            if place is not None:
                place[key] = now
            elif _has_replica(was, node_id) and node_id not in now.replicas:
                self.remove[key] = None

    def _place(
        self, was: PartitionRegistration | None, now: PartitionRegistration, node_id: int
    ) -> dict[Key, PartitionRegistration] | None:
        """Return where a partition belongs; `None` without a change, or without a replica."""
        if now == was or node_id not in now.replicas:
            return None
        if now.leader != node_id:
            return self.follow
        if was is None or now.leader_epoch != was.leader_epoch:
            return self.lead
        return self.lead_on


def _has_replica(partition: PartitionRegistration | None, node_id: int) -> bool:
    return partition is not None and node_id in partition.replicas


def _touched(
    state: ClusterState, record: Record
) -> Iterator[tuple[Key, PartitionRegistration | None]]:
    """Return the partitions that a record changes, as they are before it."""
    match record:
        case PartitionsAdded():
            count = len(state.partitions(record.topic_id))
            for number in range(count, count + len(record.partitions)):
                yield (record.topic_id, number), None
        case PartitionsChanged() | EqualPartitionsChanged():
            for topic_id, number, _ in record.changes():
                yield (topic_id, number), state.partition(topic_id, number)
        case TopicDeleted():
            for number, partition in enumerate(state.partitions(record.topic_id)):
                yield (record.topic_id, number), partition
        case _:
            pass


def _keys(state: ClusterState) -> Iterator[Key]:
    for topic in state.catalog.topics:
        for number in range(len(state.partitions(topic.topic_id))):
            yield topic.topic_id, number
