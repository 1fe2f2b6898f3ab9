"""Where the replicas of a companion are: where those of its topic are.

Pure: no clock, no I/O. Companions are the journals of queues and staging logs.
"""

from collections.abc import Sequence

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.records import Partition
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.wire.errors import LeaderNotAvailableError


def partitions_beside(state: ClusterState, topic: Topic, first: int = 0) -> list[Partition]:
    """Return new partitions of a companion, from `first` on, each where the one of its topic is.

    Raises:
        LeaderNotAvailableError: Nobody could lead one of them.
    """
    partitions: list[Partition] = []
    for number, source in enumerate(state.partitions(topic.topic_id)[first:], first):
        in_sync = tuple(node for node in source.replicas if state.brokers[node].can_lead)
        if not in_sync:
            raise LeaderNotAvailableError(
                f"nobody could lead what stands beside partition {number} of {topic.name!r}: none"
                " of its replicas is alive"
            )
        partitions.append(
            Partition(
                source.replicas,
                in_sync,
                leader=first_leader_beside(source, in_sync),
                adding_replicas=source.adding_replicas,
                removing_replicas=source.removing_replicas,
            )
        )
    return partitions


def first_leader_beside(source: Partition, in_sync: Sequence[int]) -> int:
    """Return who leads a new companion: who leads its topic, if that one can."""
    by_use = sorted(
        in_sync, key=lambda node: (node != source.leader, node not in source.in_sync_replicas)
    )
    return by_use[0]
