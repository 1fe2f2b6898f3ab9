"""The rule by which a leader steps down for a replica that has more committed records.

Pure: no clock, no I/O. A follower refuses to truncate its log below a high watermark that it knows,
and reports that.

- A replica in the ISR or eligible has all committed records. While it refuses it has not been
  compared with the leader, so nothing was committed since the leader's election without it: with
  enough other replicas in sync it would not be eligible any more. So the leader lacks committed
  records and has committed none of its own, and the replica replaces it. The old leader, and the
  replicas in sync with it, may lack the records as well: they are neither in the ISR nor eligible.
- Other eligible replicas stay eligible. One that has more again refuses in its turn. Each time
  replicas are removed from both lists, so this ends.
- Any other replica may have more, or less. The partition goes on under its leader, the replica
  stays out of the ISR, and the cluster records why, until an administrator accepts the loss.
"""

from collections.abc import Mapping

from tidelog.coordinator.metadata.commands import RefusedTruncation
from tidelog.coordinator.metadata.leader_election import PartitionEvent
from tidelog.coordinator.metadata.records import (
    BrokerRegistration,
    PartitionRegistration,
    RefusingReplica,
)


def event_of_refusal(
    partition: PartitionRegistration,
    node_id: int,
    brokers: Mapping[int, BrokerRegistration],
    *,
    refused: RefusedTruncation,
) -> PartitionEvent | None:
    """Return the event of a refused truncation, `None` if the report is outdated.

    Args:
        partition: The current registration.
        node_id: The broker with the replica that refuses.
        brokers: All registered brokers.
        refused: The truncation.
    """
    if (
        partition.leader in {None, node_id}
        or refused.leader_epoch != partition.leader_epoch
        or node_id not in partition.replicas
    ):
        return None
    if should_step_down(partition, node_id, brokers, refused=refused):
        others = [node for node in partition.in_sync_replicas if node != node_id]
        return PartitionEvent(lost=others, whole_leader=node_id)
    return PartitionEvent(refusing=RefusingReplica(node_id, refused.offset, refused.high_watermark))


def should_step_down(
    partition: PartitionRegistration,
    node_id: int,
    brokers: Mapping[int, BrokerRegistration],
    *,
    refused: RefusedTruncation,
) -> bool:
    """Return whether the leader of a partition steps down for a replica that refuses.

    Args:
        partition: The current registration, with the leader that the replica follows.
        node_id: The broker with the replica.
        brokers: All registered brokers.
        refused: The truncation.
    """
    return (
        refused.is_whole
        and node_id in partition.in_sync_or_eligible
        and node_id not in partition.offline_replicas
        and brokers[node_id].can_lead
    )
