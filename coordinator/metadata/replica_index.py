"""The index of replicas by broker, which saves a count over all partitions.

Pure: no clock, no I/O.
"""

from collections.abc import Collection
from copy import copy
from typing import final

import msgspec

from tidelog.coordinator.metadata.records import PartitionRegistration

NO_PARTITION = PartitionRegistration((), ())
"""The value before a partition is created and after it is deleted."""


class Load(msgspec.Struct):
    """The load of a broker; read-only."""

    replica_count: int = 0
    preferred_count: int = 0
    """Partitions that have the broker as their first replica."""
    leader_count: int = 0


_NO_LOAD = Load()


@final
class ReplicaIndex:
    """Counts and places of replicas.

    Topics are indexed by broker. Partitions are not: their index would cost more memory than the
    partitions themselves, and a broker with one replica of a topic usually has many.
    """

    def __init__(self) -> None:
        """Begin without partitions."""
        self._hosted: dict[int, dict[bytes, int]] = {}
        self._loads: dict[int, Load] = {}
        self._not_preferred: dict[tuple[bytes, int], None] = {}
        self._awaiting_reports: dict[tuple[bytes, int], None] = {}

    def copy(self) -> "ReplicaIndex":
        """Return an independent index of the same replicas."""
        index = ReplicaIndex()
        index._hosted = {node_id: topics.copy() for node_id, topics in self._hosted.items()}
        index._loads = {node_id: copy(load) for node_id, load in self._loads.items()}
        index._not_preferred = self._not_preferred.copy()
        index._awaiting_reports = self._awaiting_reports.copy()
        return index

    @property
    def not_preferred(self) -> Collection[tuple[bytes, int]]:
        """Partitions that have no leader, or another leader than their first replica."""
        return self._not_preferred.keys()

    @property
    def awaiting_reports(self) -> Collection[tuple[bytes, int]]:
        """Partitions that have no leader, and unverified replicas to compare."""
        return self._awaiting_reports.keys()

    def topic_ids(self, node_id: int) -> list[bytes]:
        """Return the topics that have replicas on a broker, always in the same order."""
        return sorted(self._hosted.get(node_id, ()))

    def load(self, node_id: int) -> Load:
        """Return the load of a broker."""
        return self._loads.get(node_id, _NO_LOAD)

    def moved(
        self,
        topic_id: bytes,
        number: int,
        before: PartitionRegistration,
        *,
        after: PartitionRegistration,
    ) -> None:
        """Count a changed partition; `NO_PARTITION` stands for one that does not exist."""
        replicas, leader, key = after.replicas, after.leader, (topic_id, number)
        has_moved = before.replicas != replicas
        if has_moved:
            self._move_replicas(topic_id, before, after)
        if before.leader != leader:
            if before.leader is not None:
                self._loads[before.leader].leader_count -= 1
            if leader is not None:
                self._loads[leader].leader_count += 1
        if has_moved:
            for node_id in before.replicas:
                if self._loads[node_id] == _NO_LOAD:
                    del self._loads[node_id]
        if replicas and leader != replicas[0]:
            self._not_preferred[key] = None
        else:
            self._not_preferred.pop(key, None)
        if leader is None and after.unverified_replicas:
            self._awaiting_reports[key] = None
        else:
            self._awaiting_reports.pop(key, None)

    def _move_replicas(
        self, topic_id: bytes, before: PartitionRegistration, after: PartitionRegistration
    ) -> None:
        for node_id in before.replicas:
            self._count(node_id, topic_id, -1)
        for node_id in after.replicas:
            self._count(node_id, topic_id, 1)
        if before.replicas:
            self._loads[before.replicas[0]].preferred_count -= 1
        if after.replicas:
            self._loads[after.replicas[0]].preferred_count += 1

    def _count(self, node_id: int, topic_id: bytes, change: int) -> None:
        load = self._loads.setdefault(node_id, Load())
        load.replica_count += change
        topics = self._hosted.setdefault(node_id, {})
        count = topics.get(topic_id, 0) + change
        if count:
            topics[topic_id] = count
            return
        del topics[topic_id]
        if not topics:
            del self._hosted[node_id]
