"""The partitions that one command changes, before anything is agreed on.

Pure: no clock, no I/O. Reads the state and leaves it alone; a later change of a partition in the
same command goes on from the earlier one.
"""

from collections.abc import Iterator, Mapping
from typing import final

from msgspec.structs import replace

from coordinator.catalog import Topic
from coordinator.cluster.leader_choice import NOTHING, Facts, Happening, next_partition
from coordinator.cluster.records import (
    Broker,
    ChangedPartition,
    ChangedTopic,
    Partition,
    PartitionsChanged,
    Record,
)
from coordinator.cluster.settings import ClusterConfig, min_in_sync_replicas
from coordinator.cluster.state import ClusterState


@final
class PartitionChanges:
    """What becomes of partitions."""

    def __init__(
        self,
        state: ClusterState,
        *,
        broker: Broker | None = None,
        config: ClusterConfig | None = None,
    ) -> None:
        """Start from a state, with one broker or the configuration as it is after the command."""
        self._state = state
        self._brokers: Mapping[int, Broker] = state.brokers
        if broker is not None:
            self._brokers = {**state.brokers, broker.node_id: broker}
        self._config = config or state.config
        self._changed: dict[bytes, dict[int, Partition]] = {}

    def partition(self, topic_id: bytes, number: int) -> Partition | None:
        """Return a partition as it is by now."""
        changed = self._changed.get(topic_id, {}).get(number)
        return changed or self._state.partition(topic_id, number)

    def minimum(self, topic: Topic, replication_factor: int) -> int:
        """Return how many replicas must have a record before it is committed."""
        return min_in_sync_replicas(topic, self._config, replication_factor)

    def happen(self, topic: Topic, number: int, happening: Happening = NOTHING) -> Partition:
        """Let something happen to a partition, and return what became of it."""
        before, after = self.foresee(topic, number, happening)
        return before if after is before else self._note(topic, number, after)

    def raise_epoch(self, topic: Topic, number: int) -> Partition:
        """Let nothing happen to a partition but that its partition epoch rises."""
        before = self.partition(topic.topic_id, number)
        assert before is not None, "the caller checks that it is there"
        return self._note(topic, number, before)

    def foresee(
        self, topic: Topic, number: int, happening: Happening
    ) -> tuple[Partition, Partition]:
        """Return a partition as it is by now, and what would become of it."""
        before = self.partition(topic.topic_id, number)
        assert before is not None, "the caller checks that it is there"

        def minimum(replication_factor: int) -> int:
            return self.minimum(topic, replication_factor)

        return before, next_partition(before, happening, Facts(self._brokers, minimum))

    def _note(self, topic: Topic, number: int, after: Partition) -> Partition:
        original = self._state.partition(topic.topic_id, number)
        assert original is not None
        # One record, one step of the epoch, however often the command touched it.
        after = replace(after, partition_epoch=original.partition_epoch + 1)
        self._changed.setdefault(topic.topic_id, {})[number] = after
        return after

    def records(self) -> list[Record]:
        """Return the changes as one record, or none."""
        if not self._changed:
            return []
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

    def changed(self) -> Iterator[tuple[bytes, int, Partition]]:
        """Return every changed partition as it is by now."""
        for topic_id, changed in self._changed.items():
            for number, after in changed.items():
                yield topic_id, number, after
