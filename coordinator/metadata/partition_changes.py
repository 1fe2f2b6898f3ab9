"""The partitions that one command changes, before the change is committed.

Pure: no clock, no I/O. Reads the state without changing it; a later change of a partition in the
same command starts from the earlier one.

A topic and the journals of its queues have their replicas on the same brokers. An assignment of one
is an assignment of all. A reassignment is complete when all of them are ready: otherwise the small
journal would move hours earlier, to a broker that does not have the messages yet.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, final

from msgspec.structs import replace

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.cluster_config import ClusterConfig, min_insync_replicas
from tidelog.coordinator.metadata.features import RECORD_LEVELS
from tidelog.coordinator.metadata.leader_election import (
    NO_EVENT,
    ElectionContext,
    PartitionEvent,
    elect,
)
from tidelog.coordinator.metadata.records import (
    BrokerRegistration,
    ChangedPartition,
    ChangedTopic,
    EqualPartitions,
    EqualPartitionsChanged,
    PartitionRegistration,
    PartitionsChanged,
    Record,
)
from tidelog.coordinator.metadata.state import ClusterState

_Case = tuple[int, PartitionRegistration, int, tuple[int, ...] | None]
"""What an election rests on within one command: the event by its id, the partition, the minimum,
and the ISR of the source."""

_VERY_MANY: Final = 1_000
"""Number of changed partitions from which equal ones share a registration in the record. With
fewer, a cluster may go back to an older feature level."""


class PartitionTransition(NamedTuple):
    """One partition before and after an event."""

    topic: Topic
    before: PartitionRegistration
    after: PartitionRegistration
    """The same object when nothing changes."""


@final
class PartitionChangeBuilder:
    """The partitions that a command changes, until `records` returns them."""

    def __init__(
        self,
        state: ClusterState,
        *,
        broker: BrokerRegistration | None = None,
        config: ClusterConfig | None = None,
        deleted: Topic | None = None,
    ) -> None:
        """Start from a state, with one broker or the configuration as it is after the command.

        Args:
            state: The state before the command.
            broker: A broker's registration after the command.
            config: The configuration after the command.
            deleted: A topic that the command deletes.
        """
        self._state = state
        self._brokers: Mapping[int, BrokerRegistration] = state.brokers
        if broker is not None:
            self._brokers = {**state.brokers, broker.node_id: broker}
        self._config = config or state.config
        self._deleted = deleted
        self._changed: dict[bytes, dict[int, PartitionRegistration]] = {}
        self._elected: dict[_Case, tuple[PartitionEvent, PartitionRegistration | None]] = {}
        """Results of elections, `None` without a change. An event of a broker meets very many
        partitions that are alike."""

    def partition(self, topic_id: bytes, number: int) -> PartitionRegistration | None:
        """Return a partition with the changes of this command so far."""
        changed = self._changed.get(topic_id, {}).get(number)
        return changed or self._state.partition(topic_id, number)

    def minimum(self, topic: Topic, replication_factor: int) -> int:
        """Return how many replicas must have a record before it is committed."""
        return min_insync_replicas(topic, self._config, replication_factor)

    def apply_event(
        self, topic: Topic, number: int, event: PartitionEvent = NO_EVENT
    ) -> PartitionRegistration:
        """Apply an event to a partition and its co-located partitions; return the partition."""
        before = self.partition(topic.topic_id, number)
        assert before is not None, "the caller checks that it is there"
        if event.assignment is None and not before.is_reassigning:
            after = self._elect(topic, number, before, event=event)
            return before if after is before else self._note(topic, number, after)
        for step in self.preview(topic, number, event):
            if step.after is not step.before:
                self._note(step.topic, number, step.after)
        changed = self.partition(topic.topic_id, number)
        assert changed is not None, "it was there before"
        return changed

    def bump_partition_epoch(self, topic: Topic, number: int) -> PartitionRegistration:
        """Raise the partition epoch of a partition and change nothing else."""
        before = self.partition(topic.topic_id, number)
        assert before is not None, "the caller checks that it is there"
        return self._note(topic, number, before)

    def preview(
        self, topic: Topic, number: int, event: PartitionEvent
    ) -> list[PartitionTransition]:
        """Return the changes of an event: the partition and its co-located partitions."""
        before = self.partition(topic.topic_id, number)
        assert before is not None, "the caller checks that it is there"
        if event.assignment is None and not before.is_reassigning:
            after = self._elect(topic, number, before, event=event)
            return [PartitionTransition(topic, before, after)]
        wanted = [(topic, event)]
        others = self._colocated_topics(topic)
        wanted += [(other, PartitionEvent(assignment=event.assignment)) for other in others]
        steps = self._next(wanted, number, may_complete=True)
        if others and any(step.after.is_reassigning for step in steps):
            if event.assignment is None:
                del wanted[1:]
            steps = self._next(wanted, number, may_complete=False)
        return steps

    def _next(
        self, wanted: Sequence[tuple[Topic, PartitionEvent]], number: int, *, may_complete: bool
    ) -> list[PartitionTransition]:
        steps: dict[bytes, PartitionTransition] = {}
        # The source topic comes first: the election of a journal's leader needs the source's ISR.
        for topic, event in sorted(wanted, key=lambda each: each[0].is_internal):
            before = self.partition(topic.topic_id, number)
            assert before is not None, "a topic with queues has as many partitions as they"
            source_in_sync = None
            if topic.is_internal:
                previewed = steps.get(topic.source_id)
                source = previewed.after if previewed else self.partition(topic.source_id, number)
                assert source is not None, "a topic with queues is not deleted"
                source_in_sync = source.in_sync_replicas
            context = ElectionContext(
                self._brokers, self._minimum_of(topic), may_complete, source_in_sync
            )
            after = elect(before, event, context)
            steps[topic.topic_id] = PartitionTransition(topic, before, after)
        return list(steps.values())

    def _elect(
        self, topic: Topic, number: int, before: PartitionRegistration, *, event: PartitionEvent
    ) -> PartitionRegistration:
        """Return a partition after an event that concerns no other partition.

        There is no election if one like it was held.
        """
        source_in_sync = None
        if topic.is_internal:
            source = self.partition(topic.source_id, number)
            assert source is not None, "a topic with queues is not deleted"
            source_in_sync = source.in_sync_replicas
        minimum = self.minimum(topic, before.replication_factor)
        case = (id(event), before, minimum, source_in_sync)
        known = self._elected.get(case)
        if known is None:
            context = ElectionContext(self._brokers, self._minimum_of(topic), True, source_in_sync)
            after = elect(before, event, context)
            # The event is kept, so that no other gets its id.
            self._elected[case] = (event, None if after is before else after)
            return after
        return known[1] or before

    def _minimum_of(self, topic: Topic) -> Callable[[int], int]:
        return lambda replication_factor: self.minimum(topic, replication_factor)

    def _colocated_topics(self, topic: Topic) -> list[Topic]:
        """Return the other topics that have their replicas on the same brokers."""
        catalog = self._state.catalog
        internal = catalog.internal_topics_of(topic.source_id)
        source = catalog.topic_by_id(topic.source_id)
        assert source is not None, "a topic with queues is not deleted"
        others = [each for each in (source, *internal) if each.topic_id != topic.topic_id]
        return [each for each in others if each is not self._deleted]

    def _note(
        self, topic: Topic, number: int, after: PartitionRegistration
    ) -> PartitionRegistration:
        original = self._state.partition(topic.topic_id, number)
        assert original is not None
        # One record raises the epoch once, however often the command changed the partition.
        if after.partition_epoch != original.partition_epoch + 1:
            after = replace(after, partition_epoch=original.partition_epoch + 1)
        self._changed.setdefault(topic.topic_id, {})[number] = after
        return after

    def records(self) -> list[Record]:
        """Return the changes as one record; empty without changes."""
        if not self._changed:
            return []
        count = sum(map(len, self._changed.values()))
        has_level = self._state.feature_level >= RECORD_LEVELS[EqualPartitionsChanged]
        if count >= _VERY_MANY and has_level:
            groups = self._equal()
            if 2 * len(groups) <= count:
                return [EqualPartitionsChanged(groups)]
        return [
            PartitionsChanged(
                [
                    ChangedTopic(
                        topic_id,
                        [ChangedPartition(number, after) for number, after in changed.items()],
                    )
                    for topic_id, changed in self._changed.items()
                ]
            )
        ]

    def _equal(self) -> list[EqualPartitions]:
        """Return the changed partitions, grouped by what they are now."""
        groups: dict[PartitionRegistration, dict[bytes, list[int]]] = {}
        for topic_id, number, after in self.changed():
            groups.setdefault(after, {}).setdefault(topic_id, []).append(number)
        return [EqualPartitions(after, list(places.items())) for after, places in groups.items()]

    def changed(self) -> Iterator[tuple[bytes, int, PartitionRegistration]]:
        """Return every changed partition with the changes so far."""
        for topic_id, changed in self._changed.items():
            for number, after in changed.items():
                yield topic_id, number, after
