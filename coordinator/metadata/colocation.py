"""Colocation: the replicas of an internal topic are where those of its source topic are.

Pure: no clock, no I/O. Internal topics are the journals of queues, and staging logs.
"""

from collections.abc import Sequence

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.records import Partition
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.wire.errors import LeaderNotAvailableError


def colocated_partitions(state: ClusterState, topic: Topic, first: int = 0) -> list[Partition]:
    """Return new partitions of an internal topic, from `first` on, where those of its source are.

    Raises:
        LeaderNotAvailableError: No replica could lead one of them.
    """
    partitions: list[Partition] = []
    for number, source in enumerate(state.partitions(topic.topic_id)[first:], first):
        in_sync = tuple(node for node in source.replicas if state.brokers[node].can_lead)
        if not in_sync:
            raise LeaderNotAvailableError(
                f"no replica could lead what belongs to partition {number} of {topic.name!r}: none"
                " of its replicas is alive"
            )
        partitions.append(
            Partition(
                source.replicas,
                in_sync,
                leader=colocated_leader(source, in_sync),
                adding_replicas=source.adding_replicas,
                removing_replicas=source.removing_replicas,
            )
        )
    return partitions


def colocated_leader(source: Partition, in_sync: Sequence[int]) -> int:
    """Return the leader of a new internal partition: that of its source, if it can lead."""
    by_use = sorted(
        in_sync, key=lambda node: (node != source.leader, node not in source.in_sync_replicas)
    )
    return by_use[0]
