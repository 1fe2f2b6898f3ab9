"""Check whether a node may stop (RabbitMQ: `check_if_node_is_quorum_critical`).

Pure: no clock, no I/O. Reads every partition with a replica on the node.
"""

from collections.abc import Collection, Generator
from typing import Final, NamedTuple

import msgspec

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.cluster_config import min_insync_replicas
from tidelog.coordinator.metadata.state import ClusterState

PARTITIONS_NAMED_MAX: Final = 20
"""Maximum number of partitions that a result names; it counts all."""

PARTITIONS_PER_STEP: Final = 1_000
"""Partitions that one step looks at."""


class EndangeredPartition(NamedTuple):
    """A partition that takes no writes, or is unavailable, without the node."""

    topic: Topic
    number: int
    remaining: tuple[int, ...]
    """In-sync replicas that are left."""
    minimum: int
    """In-sync replicas that the partition needs: `min_insync_replicas`, at least 1."""


class StopCheck(msgspec.Struct):
    """Effects of a stop of one node, by the metadata of a moment."""

    remaining_voters: list[int]
    """Live voters that are left."""
    has_majority: bool
    """Whether these are a majority, or the node is no voter."""
    partition_count: int = 0
    """Endangered partitions."""
    partitions: list[EndangeredPartition] = msgspec.field(default_factory=list[EndangeredPartition])
    """The first of them, by topic name and number."""

    def add(self, endangered: EndangeredPartition) -> None:
        """Count an endangered partition, and name it if it is one of the first."""
        self.partition_count += 1
        if len(self.partitions) < PARTITIONS_NAMED_MAX:
            self.partitions.append(endangered)


def check_stop(
    state: ClusterState, node_id: int, voters: Collection[int]
) -> Generator[None, None, StopCheck]:
    """Return what becomes unavailable if a node stops now; yield after each step.

    A partition counts if the node is in its ISR and too few others are. Other partitions lose
    nothing: they have the node's replica in no quorum. No step takes longer than a millisecond or
    two; what changes between steps counts or not.
    """
    alive = {each.node_id for each in state.brokers.values() if each.can_lead} - {node_id}
    remaining_voters = sorted(alive.intersection(voters))
    has_majority = node_id not in voters or 2 * len(remaining_voters) > len(voters)
    check = StopCheck(remaining_voters, has_majority)
    hosted = [state.catalog.topic_by_id(each) for each in state.index.topic_ids(node_id)]
    looked_at = 0
    for topic in sorted(filter(None, hosted), key=lambda each: each.name):
        for number, partition in enumerate(state.partitions(topic.topic_id)):
            looked_at += 1
            if looked_at % PARTITIONS_PER_STEP == 0:
                yield
            if node_id in partition.in_sync_replicas:
                remaining = tuple(node for node in partition.in_sync_replicas if node in alive)
                factor = partition.replication_factor
                minimum = max(1, min_insync_replicas(topic, state.config, factor))
                if len(remaining) < minimum:
                    check.add(EndangeredPartition(topic, number, remaining, minimum))
    return check
