"""How far replicas are that are being added to partitions which this broker leads."""

from collections.abc import Iterable
from typing import final

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.wire.messages.reassignment import (
    ListReassignmentsReply,
    ListReassignmentsRequest,
    ReplicaProgress,
)


@final
class ReassignmentsHandler:
    """Compares what followers have reported with what there is."""

    def __init__(self, metadata: ReplicatedState, partitions: ReplicaManager) -> None:
        """Know by `metadata` what moves, and by `partitions` how far it is."""
        self._metadata = metadata
        self._partitions = partitions

    def describe(
        self, request: ListReassignmentsRequest, attachment: memoryview
    ) -> ListReassignmentsReply:
        """Say how far replicas are, as their leader knows it."""
        del attachment
        state = self._metadata.state
        replicas: list[ReplicaProgress] = []
        for partition in self._partitions.all():
            known = state.partition(*partition.key)
            topic = state.catalog.topic_by_id(partition.topic_id)
            if known is None or topic is None or partition.leader is None:
                continue
            if request.topics is None or topic.name in request.topics:
                replicas += _progress(topic, known, partition)
        return ListReassignmentsReply(
            sorted(replicas, key=lambda each: (each.topic, each.partition, each.node_id))
        )


def _progress(
    topic: Topic, known: PartitionRegistration, partition: Partition
) -> Iterable[ReplicaProgress]:
    leader, log = partition.leader, partition.log
    assert leader is not None, "it is led here"
    start, end, size = log.log_start_offset, log.log_end_offset, log.size_bytes
    for node_id in known.adding_replicas:
        position = leader.follower_end_offset(node_id)
        left = end - min(max(start if position is None else position, start), end)
        yield ReplicaProgress(
            topic.name,
            partition.number,
            node_id,
            end - start,
            left,
            size,
            # As if all records were equally long: to look for the place would read from the disk.
            size * left // max(end - start, 1),
            node_id in known.in_sync_replicas,
        )
