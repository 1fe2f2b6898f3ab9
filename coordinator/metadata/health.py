"""The health of the partitions of a cluster.

Pure: no clock, no I/O. Reads every partition, so it serves administrators and not the hot path.
"""

from collections.abc import Container, Generator
from typing import Final, final

import msgspec

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.cluster_config import (
    default_replication_factor,
    min_insync_replicas,
)
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.coordinator.metadata.state import ClusterState

PARTITIONS_PER_STEP: Final = 1_000
"""Partitions that one step counts, in a millisecond or two."""


class NotablePartition(msgspec.Struct, frozen=True):
    """A partition that is unhealthy, led by another replica than the preferred, or reassigned."""

    topic: Topic
    number: int
    partition: PartitionRegistration


@final
class Health(msgspec.Struct):
    """The partitions of a cluster in numbers."""

    partition_count: int = 0
    leaderless_count: int = 0
    """Partitions without a leader."""
    unavailable_count: int = 0
    """Partitions with a leader, but fewer in-sync replicas than `min_insync_replicas`."""
    under_replicated_count: int = 0
    """Partitions with fewer in-sync replicas than replicas; includes the two counts above."""
    not_preferred_count: int = 0
    """Partitions that another broker than the first replica leads."""
    reassigning_count: int = 0
    default_replication_factor: int = 1
    """Replicas of new topics, as far as there are brokers for them."""
    below_default_count: int = 0
    """Topics that have fewer replicas than new topics get, and are not about to get more."""
    notable: list[NotablePartition] = msgspec.field(default_factory=list[NotablePartition])
    """All partitions that are counted above or damaged, by topic name and number."""


def health_of(state: ClusterState, *, damaged: Container[tuple[bytes, int]] = ()) -> Health:
    """Return the health of all partitions.

    `damaged` has topic id and number of partitions with damaged replicas, which are notable.
    """
    health = new_health(state)
    for topic in state.catalog.topics:
        for _ in count_topic(health, state, topic, damaged=damaged):
            pass
    return health


def new_health(state: ClusterState) -> Health:
    """Return the health of no partition yet, for `count_topic`."""
    broker_count = len(state.undrained_brokers)
    default = default_replication_factor(state.config, broker_count)
    return Health(default_replication_factor=max(1, min(default, broker_count)))


def count_topic(
    health: Health,
    state: ClusterState,
    topic: Topic,
    *,
    damaged: Container[tuple[bytes, int]] = (),
) -> Generator[None, None, None]:
    """Add the partitions of one topic; see `health_of`. A deleted topic has none.

    Yield after each step: after so many partitions, of this and of earlier topics.
    """
    partitions = state.partitions(topic.topic_id)
    if partitions and not topic.is_internal:
        factor = min(len(each.target_replicas) for each in partitions)
        health.below_default_count += factor < health.default_replication_factor
    for number, partition in enumerate(partitions):
        health.partition_count += 1
        if health.partition_count % PARTITIONS_PER_STEP == 0:
            yield
        is_counted = _count(health, state, topic, partition=partition)
        if is_counted or (topic.topic_id, number) in damaged:
            health.notable.append(NotablePartition(topic, number, partition))


def _count(
    health: Health, state: ClusterState, topic: Topic, *, partition: PartitionRegistration
) -> bool:
    """Count one partition; return whether it is notable."""
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
