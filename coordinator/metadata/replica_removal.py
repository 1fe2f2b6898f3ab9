"""When a failed replica is removed from the in-sync and eligible replicas.

Pure: no clock, no I/O. A broker asks for it as long as this says yes, the cluster does it if this
says yes: one rule, so nothing is asked for in vain.

- A replica that has lost files, so that nobody can tell what was in them, is neither to be in sync
  nor eligible, whoever else is there: others have what is committed, or somebody accepts the loss.
  Then any other replica has more, and so the cluster remembers it.
- A replica that may lack committed records, and knows which, is neither to be in sync nor eligible.
  It goes as soon as another one can lead that has them all, in sync or eligible, whatever
  `min_insync_replicas` says. While nobody else can, it stays: nobody has more, and what is not
  damaged can be read.
- A replica whose log is offline, for something new could not be written, still has all that is
  committed on its disk, and serves it from the next start of its broker on. Until then it leads
  nothing: it goes for whoever is in sync or eligible and can lead, but it may stay eligible. The
  cluster remembers that it cannot lead, or else two such replicas would lead in turn.
- A replica that only cannot take more records is not to be in sync; it may stay eligible, for it
  has what is committed. It goes only if somebody else in sync can lead. Leadership that went to
  eligible ones would go round for ever when all disks are full.

Each time somebody leaves the in-sync replicas, or both lists, for good, or cannot lead any more
before its next start: so it comes to an end.
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
    """Return whether a replica that is not in order is in sync or eligible, and need not be.

    Args:
        partition: As it is now.
        node_id: Whose replica it is.
        brokers: All that are registered.
        replica: What is wrong with it.
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
