"""The rules by which a failed replica is removed from the ISR and the eligible replicas.

Pure: no clock, no I/O. The broker and the controller use the same rule: the broker requests the
removal while the rule holds, and the controller applies it if the rule holds. So no request is in
vain.

- A replica that has lost files cannot tell which records they held. It is removed from the ISR and
  the eligible replicas even if there is no other: others have the committed records, or an
  administrator accepts the loss. Any other replica then has more, so the cluster records the loss.
- A replica that may lack committed records, and knows which, is neither in the ISR nor eligible. It
  is removed as soon as another replica that has all of them, in the ISR or eligible, can lead,
  regardless of `min_insync_replicas`. Until then it stays: no replica has more, and its undamaged
  records can be read.
- A replica whose log is offline after a failed write still has all committed records on its disk,
  and serves them after the next start of its broker. Until then it leads nothing: it makes way for
  any replica in the ISR or eligible that can lead, but it may stay eligible. The cluster records
  that it cannot lead; otherwise two such replicas would lead in turn.
- A replica that only cannot take more records is not in the ISR. It may stay eligible, for it has
  the committed records. It is removed only if another replica in the ISR can lead. Leadership that
  went to eligible replicas would go round for ever when all disks are full.

Each removal takes a replica out of the ISR or both lists for good, or makes it unable to lead until
its next start: so the removals terminate.
"""

from collections.abc import Mapping

from tidelog.coordinator.metadata.commands import FailedReplica
from tidelog.coordinator.metadata.records import BrokerRegistration, PartitionRegistration


def should_remove_from_isr(
    partition: PartitionRegistration,
    node_id: int,
    brokers: Mapping[int, BrokerRegistration],
    *,
    replica: FailedReplica,
) -> bool:
    """Return whether a failed replica is in the ISR or eligible, and can be removed.

    Args:
        partition: The current registration.
        node_id: The broker with the failed replica.
        brokers: All registered brokers.
        replica: The failure of the replica.
    """
    if replica.is_lost:
        is_known = node_id in partition.wiped_replicas or node_id not in partition.replicas
        return node_id in partition.in_sync_or_eligible or not is_known
    relied_on = set(partition.in_sync_replicas)
    if replica.may_lack_records or replica.is_offline:
        relied_on |= set(partition.eligible_leader_replicas)
    if node_id in partition.offline_replicas and not replica.may_lack_records:
        return False
    others = relied_on.difference(partition.offline_replicas, [node_id])
    return node_id in relied_on and any(brokers[other].can_lead for other in others)
