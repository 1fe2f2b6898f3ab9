"""How the partitions of a cluster stand: what somebody may want to look at.

Pure: no clock, no I/O. Looks at every partition, so it is for people who ask, not for the way of a
request.
"""

from typing import final

import msgspec

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.cluster_config import min_insync_replicas
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.coordinator.metadata.state import ClusterState


class NotablePartition(msgspec.Struct, frozen=True):
    """A partition that is not as it should be, or that is being moved."""

    topic: Topic
    number: int
    partition: PartitionRegistration


@final
class Health(msgspec.Struct):
    """The partitions of a cluster in numbers."""

    partition_count: int = 0
    leaderless_count: int = 0
    """Nobody leads them."""
    unavailable_count: int = 0
    """They have a leader, but fewer in-sync replicas than `min_insync_replicas`."""
    under_replicated_count: int = 0
    """They have fewer in-sync replicas than replicas; those above are among them."""
    not_preferred_count: int = 0
    """Another broker leads them than the first replica."""
    reassigning_count: int = 0
    notable: list[NotablePartition] = msgspec.field(default_factory=list[NotablePartition])
    """All that are counted above, by name of the topic and number."""


def health_of(state: ClusterState) -> Health:
    """Return how the partitions stand."""
    health = Health()
    for topic in state.catalog.topics:
        for number, partition in enumerate(state.partitions(topic.topic_id)):
            health.partition_count += 1
            if _count(health, state, topic, partition=partition):
                health.notable.append(NotablePartition(topic, number, partition))
    return health


def _count(
    health: Health, state: ClusterState, topic: Topic, *, partition: PartitionRegistration
) -> bool:
    """Count one partition; return whether there is something to say about it."""
    factor = partition.replication_factor
    in_sync_count = len(partition.in_sync_replicas)
    minimum = min_insync_replicas(topic, state.config, factor)
    is_leaderless = partition.leader is None
    is_unavailable = not is_leaderless and in_sync_count < minimum
    is_under_replicated = is_leaderless or in_sync_count < factor
    is_elsewhere = not is_leaderless and partition.leader != partition.replicas[0]
    health.leaderless_count += is_leaderless
    health.unavailable_count += is_unavailable
    health.under_replicated_count += is_under_replicated
    health.not_preferred_count += is_elsewhere
    health.reassigning_count += partition.is_reassigning
    return is_under_replicated or is_unavailable or is_elsewhere or partition.is_reassigning
